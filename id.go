package onceward

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ID builds a message id from the parts that make the message unique: the same parts give the same
// id on every machine, in every release, so that a producer that runs again sends the same id.
//
//	ID("order", 42, "created") == "order:42:created"
//
// Parts are strings, integers, [encoding.TextMarshaler] or [fmt.Stringer] values; anything else
// panics, as does calling ID with no part, for both are mistakes of the program and not of its
// data. Parts are joined with ':'. Inside a part ':', '#', '%' and control bytes are
// percent-encoded, and so is the first byte of a text that reads as an integer. Hence different
// parts give different ids: ("a","bc") and ("ab","c"), ("a","") and ("a"), 1 and "1".
//
// The order of the ids follows the order of the parts, which keeps database indexes compact: put the
// part that grows (a sequence, a UUIDv7) where it decides the order. An id is never a hash.
func ID(parts ...any) string {
	if len(parts) == 0 {
		panic("onceward: ID needs at least one part")
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(':')
		}
		if n, ok := integer(p); ok {
			b.WriteString(n)
			continue
		}
		escape(&b, text(p))
	}
	return b.String()
}

func integer(p any) (string, bool) {
	switch v := p.(type) {
	case int:
		return strconv.Itoa(v), true
	case int8:
		return strconv.FormatInt(int64(v), 10), true
	case int16:
		return strconv.FormatInt(int64(v), 10), true
	case int32:
		return strconv.FormatInt(int64(v), 10), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint:
		return strconv.FormatUint(uint64(v), 10), true
	case uint8:
		return strconv.FormatUint(uint64(v), 10), true
	case uint16:
		return strconv.FormatUint(uint64(v), 10), true
	case uint32:
		return strconv.FormatUint(uint64(v), 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	}
	return "", false
}

func text(p any) string {
	switch v := p.(type) {
	case string:
		return v
	case encoding.TextMarshaler:
		t, err := v.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("onceward: ID part %T: %v", p, err))
		}
		return string(t)
	case fmt.Stringer:
		return v.String()
	}
	panic(fmt.Sprintf("onceward: ID takes strings, integers, TextMarshalers and Stringers, not %T", p))
}

const upperHex = "0123456789ABCDEF"

func escape(b *strings.Builder, s string) {
	for i := range len(s) {
		c := s[i]
		if c == ':' || c == '#' || c == '%' || c < 0x20 || c == 0x7f || i == 0 && readsAsInteger(s) {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
			continue
		}
		b.WriteByte(c)
	}
}

func readsAsInteger(s string) bool {
	s = strings.TrimPrefix(s, "-")
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// child is the id of a message that a consumer emits while it handles parent.
func child(parent, consumer, label string) string {
	var b strings.Builder
	b.Grow(len(parent) + len(consumer) + len(label) + 2)
	b.WriteString(parent)
	b.WriteByte('#')
	escape(&b, consumer)
	b.WriteByte(':')
	escape(&b, label)
	return b.String()
}

// MaxLiteralID is the length in bytes up to which stores keep an id as it is. A longer one is
// represented by its SHA-256 digest. The limit is part of the stored format and never changes.
const MaxLiteralID = 254

// First bytes of the stored forms that are not the id itself.
const (
	formHash  = 0x00 // + SHA-256 of the id
	formUUID  = 0x01 // + the 16 bytes of a canonical lower-case UUID
	formNoID  = 0x02 // + SHA-256 of what tells a message without an id from others
	lastForms = 0x03 // literals starting at or below are hashed, so that no form equals a literal
)

// StoredID is the form in which every store keeps an id, at most 255 bytes, for any id: different
// ids have different forms (up to SHA-256). Most ids are stored as they are. A canonical lower-case
// UUID takes 17 bytes: 0x01 and its value. An id over [MaxLiteralID] bytes, or one that starts with
// a byte up to 0x03, takes 33: 0x00 and its SHA-256 digest.
func StoredID(id string) string {
	if len(id) > MaxLiteralID || id != "" && id[0] <= lastForms {
		sum := sha256.Sum256([]byte(id))
		return string(append([]byte{formHash}, sum[:]...))
	}
	if len(id) == 36 {
		var b [17]byte
		b[0] = formUUID
		if packUUID(b[1:], id) {
			return string(b[:])
		}
	}
	return id
}

// LiteralID gives back the id whose stored form is given, and false for a digest, from which there
// is no way back.
func LiteralID(stored string) (string, bool) {
	if stored == "" || stored[0] > lastForms {
		return stored, true
	}
	if stored[0] != formUUID || len(stored) != 17 {
		return "", false
	}
	u := hex.EncodeToString([]byte(stored[1:]))
	return u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:], true
}

func packUUID(dst []byte, s string) bool {
	n := 0
	for i := 0; i < 36; {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return false
			}
			i++
			continue
		}
		hi, lo := lowerHex(s[i]), lowerHex(s[i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		dst[n] = hi<<4 | lo
		n, i = n+1, i+2
	}
	return true
}

func lowerHex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// noID is the stored form that stands for a message without an id, so that the same physical
// message, delivered again, meets its own dead letter: by its position where the source has one, by
// its body otherwise.
func noID(in *Incoming) string {
	h := sha256.New()
	if p := in.Position; p.Log != "" {
		fmt.Fprintf(h, "%d:%s:%d:%d", len(p.Log), p.Log, p.Partition, p.Next)
	} else {
		h.Write(in.Body)
	}
	return string(h.Sum([]byte{formNoID}))
}

// AnonymousID is a new stored form for a row whose message has no id: no other row has it.
func AnonymousID() string {
	b := make([]byte, 33)
	b[0] = formNoID
	rand.Read(b[1:])
	return string(b)
}

// Fingerprint tells two bodies apart that came under the same id: the first eight bytes of the
// body's SHA-256 digest, big endian, never 0. Only the raw body counts; headers and key do not. The
// rule is part of the stored format and never changes.
func Fingerprint(body []byte) int64 {
	sum := sha256.Sum256(body)
	if f := int64(binary.BigEndian.Uint64(sum[:8])); f != 0 { //nolint:gosec // a bit pattern, not a number
		return f
	}
	return 1
}

// Quote renders bytes from outside, such as an id, for an error: quoted, control bytes escaped, at
// most about 80 of them.
func Quote(s string) string {
	if head := short(s); len(head) < len(s) {
		return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(head), len(s))
	}
	return strconv.Quote(s)
}

// short cuts bytes from outside for a log line, whose handler escapes them.
func short(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
