package onceward

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/onceward/onceward/internal/jsonpath"
)

// Identity says where a message's id is. The zero value is [ByMessageID].
type Identity struct {
	find func(*Message) (string, error)
}

// ByMessageID takes the broker's message id.
func ByMessageID() Identity { return Identity{} }

// ByHeader takes the first value of a header.
func ByHeader(name string) Identity {
	return IdentifyBy(func(m *Message) (string, error) { return m.Headers.Get(name), nil })
}

// ByJSON takes a value of the JSON body by a path such as $.payment.id or $.items[0].id. Strings
// are taken without their quotes, numbers as they are written. It panics if path is malformed.
func ByJSON(path string) Identity {
	p := jsonpath.MustParse(path)
	return IdentifyBy(func(m *Message) (string, error) {
		v, err := p.Find(m.Body)
		if err != nil {
			return "", err
		}
		return v.Text()
	})
}

// ByContent takes a digest of the body: two messages with the same body are the same message.
func ByContent() Identity {
	return IdentifyBy(func(m *Message) (string, error) {
		sum := sha256.Sum256(m.Body)
		return "sha256:" + hex.EncodeToString(sum[:]), nil
	})
}

// IdentifyBy takes what f returns. An error, or an empty id, makes the message a dead letter.
func IdentifyBy(f func(*Message) (string, error)) Identity { return Identity{find: f} }

// shielded calls a function of the program's, and makes an error of its panic: a message that it can't
// cope with must not end the process.
func shielded[T any](f func(*Message) (T, error), m *Message) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f(m)
}

func (i Identity) of(m *Message) (string, error) {
	id := m.ID
	if i.find != nil {
		var err error
		if id, err = shielded(i.find, m); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoID, err)
		}
	}
	if id == "" {
		return "", ErrNoID
	}
	return id, nil
}
