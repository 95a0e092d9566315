// Command generate writes the payments of the example to standard output: always the same bytes.
//
//	go run ./examples/payments/generate > examples/payments/payments.ndjson
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := write(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func write(to io.Writer) error {
	w := bufio.NewWriter(to)
	for _, line := range newFeed().run() {
		if _, err := w.WriteString(line + "\n"); err != nil {
			return fmt.Errorf("write payments: %w", err)
		}
	}
	return w.Flush()
}

// payment is a line of the file. Amount is a decimal number of the currency.
type payment struct {
	ID          any         `json:"payment_id,omitempty"`
	Type        string      `json:"type,omitempty"`
	Account     string      `json:"account"`
	Amount      json.Number `json:"amount"`
	Currency    string      `json:"currency"`
	CreatedAt   string      `json:"created_at"`
	Description string      `json:"description,omitempty"`
}

func (p payment) line() string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		panic(err) // only strings and numbers
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// random is splitmix64: the same numbers in every release of Go.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9E3779B97F4A7C15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// below returns a number from 0 to n-1.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) } //nolint:gosec // n is small and positive

// in is true once in n times.
func (r *random) in(n int) bool { return r.below(n) == 0 }

func (r *random) text(n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.below(len(alphabet))]
	}
	return string(b)
}

func (r *random) of(list []string) string { return list[r.below(len(list))] }

const payments = 19_500 // with different ids, not counting the odd ones

// feed builds the file from front to back.
type feed struct {
	random
	clock time.Time
	lines []string
	later map[int][]string // lines due after the payment of that number
}

func newFeed() *feed {
	return &feed{random: 2026, clock: time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC), later: map[int][]string{}}
}

func (f *feed) run() []string {
	f.planOddities()
	for i := range payments {
		p := f.payment()
		switch {
		case f.in(900):
			p.Account = f.of(unknownAccounts)
		case f.in(600):
			f.planConflict(i, p)
		}
		f.emit(i, p.line())
		f.lines = append(f.lines, f.later[i]...)
		delete(f.later, i)
		if f.in(250) {
			f.emit(i, f.other().line())
		}
	}
	return append(f.lines, f.rest()...)
}

// emit writes a line, and repeats some at once, some much later, as a broker or a producer would.
func (f *feed) emit(i int, line string) {
	f.lines = append(f.lines, line)
	for f.in(60) {
		f.lines = append(f.lines, line)
	}
	for f.in(50) {
		f.plan(i+1000+f.below(payments), line)
	}
}

// plan writes lines after payment number i; those beyond the last payment end the file.
func (f *feed) plan(i int, lines ...string) { f.later[i] = append(f.later[i], lines...) }

func (f *feed) rest() []string {
	due := make([]int, 0, len(f.later))
	for i := range f.later {
		due = append(due, i)
	}
	slices.Sort(due)
	var lines []string
	for _, i := range due {
		lines = append(lines, f.later[i]...)
	}
	return lines
}

func (f *feed) payment() payment {
	f.clock = f.clock.Add(time.Duration(f.below(9)) * time.Second)
	p := payment{
		ID:        f.id(),
		Type:      "payment",
		Account:   f.account(),
		Amount:    f.amount(),
		Currency:  "EUR",
		CreatedAt: f.clock.Format(time.RFC3339),
	}
	if f.in(5) {
		p.Description = f.of(descriptions)
	}
	return p
}

// id is like those that payment providers give: some UUIDs of version 7, mostly short texts.
func (f *feed) id() string {
	if !f.in(4) {
		return "pay_" + f.text(10, letters+upperLetters+digits)
	}
	const hex = digits + "abcdef"
	ms := fmt.Sprintf("%012x", f.clock.UnixMilli()+int64(f.below(1000)))
	return ms[:8] + "-" + ms[8:] + "-7" + f.text(3, hex) + "-" + f.text(1, "89ab") + f.text(3, hex) + "-" + f.text(12, hex)
}

// account prefers the first ones: some accounts are used much more than others.
func (f *feed) account() string { return accounts[f.below(1+f.below(len(accounts)))] }

// amount is written as people and programs do: 20, 20.5, 20.50.
func (f *feed) amount() json.Number {
	cents := 1 + f.below(1+f.below(300_000))
	switch {
	case cents%100 == 0 && f.in(2):
		return json.Number(fmt.Sprint(cents / 100))
	case cents%10 == 0 && f.in(2):
		return json.Number(fmt.Sprintf("%d.%d", cents/100, cents/10%10))
	}
	return json.Number(fmt.Sprintf("%d.%02d", cents/100, cents%100))
}

// other is a message that is not for the ledger.
func (f *feed) other() payment {
	p := f.payment()
	p.Type = f.of(otherTypes)
	return p
}

// planConflict sends another payment under the id of p, near or far behind it, and sometimes again.
func (f *feed) planConflict(i int, p payment) {
	other := p
	other.Amount = json.Number(fmt.Sprintf("%d.%02d", 3000+f.below(1000), f.below(100)))
	at := i + f.below(3)*f.below(2000)
	f.plan(at, other.line())
	if f.in(2) {
		f.plan(at+1+f.below(5000), other.line())
	}
}

const (
	letters      = "abcdefghijklmnopqrstuvwxyz"
	upperLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits       = "0123456789"
)

var accounts = []string{
	"acct-0001", "zażółć", "東京", "caf\u00e9", "cafe\u0301", "Ana", "ana", "ana.maria", "acct-0002", "gęślą jaźń",
	"大阪支店", "Zoë", "naïve", "Ωmega", "Björk Guðmundsdóttir", "O'Brien & Sons", "🦊", "👩‍👩‍👧", "Ёлка", "שלום",
	"مكتبة", "7", "007", "acct-0003",
}

// Almost accounts: they differ from one in case, in an accent, or by a space.
var unknownAccounts = []string{"nobody", "ZAŻÓŁĆ", "cafe", "東京 ", "Acct-0001", "acct-0001 ", "07", ""}

var otherTypes = []string{"refund", "balance_check", "Payment", "payment ", ""}

var descriptions = []string{
	"Kawa i ciasto", "Grüße aus Köln", "家賃 三月", "crème brûlée", "Δώρο για τη Μαρία", "подарок 🎁", `rent "March"`,
	`C:\invoices\7`, "it’s paid; DROP TABLE ledger", "50% – deposit", "first line\nsecond line", "tea & <biscuits>",
}
