package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onceward/onceward"
)

func claimCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "fresh, then a duplicate", run: (*env[TTx]).claimFresh},
		{name: "another body", run: (*env[TTx]).claimOtherBody},
		{name: "fingerprint 0 is not compared", run: (*env[TTx]).claimNoFingerprint},
		{name: "results in the order given", run: (*env[TTx]).claimOrder},
		{name: "batches with finished ones among them", run: (*env[TTx]).claimBatches},
		{name: "many ids", run: (*env[TTx]).claimMany},
		{name: "no ids", run: (*env[TTx]).claimNone},
		{name: "ids are bytes", run: (*env[TTx]).claimBytes},
		{name: "consumers are apart, byte by byte", run: (*env[TTx]).claimConsumers},
		{name: "a rollback gives the claim back", run: (*env[TTx]).claimRollback},
		{name: "two claims in one transaction", run: (*env[TTx]).claimTwice},
		{name: "a claim deletes its row", run: (*env[TTx]).claimRow},
		{name: "a duplicate deletes its row", run: (*env[TTx]).claimDuplicateRow},
		{name: "another body leaves its row", run: (*env[TTx]).claimOtherBodyRow},
		{name: "a rollback gives the row back", run: (*env[TTx]).claimRowRollback},
		{name: "a lost row claims nothing", run: (*env[TTx]).claimLost},
		{name: "a lost row of a finished message is left to its owner", run: (*env[TTx]).claimLostDuplicate},
		{name: "a row that was given back is lost", run: (*env[TTx]).claimGivenBack},
		{name: "a lost row among others", run: (*env[TTx]).claimLostAmongOthers},
		{name: "known", run: (*env[TTx]).claimKnown},
		{name: "forgotten ids are fresh", run: (*env[TTx]).claimForgotten},
		{name: "another store on the same data", run: (*env[TTx]).claimReopened},
	}
}

func (e *env[TTx]) claimFresh() {
	e.wantRecorded("c", recs("a"), false)
	e.wantClaim("c", rec("a", "x"), onceward.Fresh)
	e.wantClaim("c", rec("a", "x"), onceward.Duplicate)
	e.wantClaim("c", rec("b", "x"), onceward.Fresh)
	e.wantRecorded("c", recs("b", "z", "a"), true, false, true)
}

func (e *env[TTx]) claimOtherBody() {
	e.wantClaim("c", rec("a", "x"), onceward.Fresh)
	e.wantClaim("c", rec("a", "y"), onceward.OtherBody)
	e.wantClaim("c", rec("a", "x"), onceward.Duplicate)
}

func (e *env[TTx]) claimNoFingerprint() {
	zero := func(id string) onceward.Record { return onceward.Record{ID: id} }
	e.wantClaim("c", rec("a", "x"), onceward.Fresh)
	e.wantClaim("c", zero("a"), onceward.Duplicate)
	e.wantClaim("c", zero("b"), onceward.Fresh)
	e.wantClaim("c", zero("b"), onceward.Duplicate)
	e.wantClaim("c", rec("b", "x"), onceward.Duplicate)
	negative := onceward.Record{ID: "n", Fingerprint: -1 << 63}
	e.wantClaim("c", negative, onceward.Fresh)
	e.wantClaim("c", negative, onceward.Duplicate)
	e.wantClaim("c", onceward.Record{ID: "n", Fingerprint: 1<<63 - 1}, onceward.OtherBody)
}

func (e *env[TTx]) claimOrder() {
	e.claim("c", rec("m", "x"), rec("b", "x"))
	got := e.claim("c", rec("z", "x"), rec("m", "x"), rec("a", "x"), rec("b", "other"), rec("n", "x"))
	want := []onceward.Found{onceward.Fresh, onceward.Duplicate, onceward.Fresh, onceward.OtherBody, onceward.Fresh}
	if !slices.Equal(got, want) {
		e.Fatalf("Claim = %v, want %v", names(got), names(want))
	}
}

func (e *env[TTx]) claimBatches() {
	for _, finished := range []int{0, 1, 25, 50} {
		var rs []onceward.Record
		for i := range 50 {
			rs = append(rs, rec(fmt.Sprintf("%d of %d", i*7%50, finished), "x"))
		}
		if finished > 0 {
			e.claim("c", rs[:finished]...)
		}
		for i, f := range e.claim("c", rs...) {
			if want := map[bool]onceward.Found{true: onceward.Duplicate, false: onceward.Fresh}[i < finished]; f != want {
				e.Fatalf("with %d finished, number %d is %v, want %v", finished, i, names([]onceward.Found{f}), names([]onceward.Found{want}))
			}
		}
		for _, f := range e.claim("c", rs...) {
			if f != onceward.Duplicate {
				e.Fatalf("with %d finished, the second round has %v", finished, names([]onceward.Found{f}))
			}
		}
	}
}

func (e *env[TTx]) claimMany() {
	var rs []onceward.Record
	for i := range 3000 {
		rs = append(rs, rec(fmt.Sprintf("%d", i*7919%3000), "x"))
	}
	for _, want := range []onceward.Found{onceward.Fresh, onceward.Duplicate} {
		found := e.claim("c", rs...)
		if len(found) != len(rs) {
			e.Fatalf("%d results for %d ids", len(found), len(rs))
		}
		for i, f := range found {
			if f != want {
				e.Fatalf("number %d is %v, want %v", i, names([]onceward.Found{f}), names([]onceward.Found{want}))
			}
		}
	}
}

func (e *env[TTx]) claimNone() {
	if found := e.claim("c"); len(found) != 0 {
		e.Fatalf("Claim of nothing found %v", names(found))
	}
	found, err := e.s.Park(e.ctx, "c", nil)
	e.must(err)
	if len(found) != 0 {
		e.Fatalf("Park of nothing found %v", names(found))
	}
	e.wantRecorded("c", nil)
	e.must(e.s.Put(e.ctx))
	e.must(e.s.Finish(e.ctx))
}

// hostileIDs are distinct ids that a database may take for the same, cut, or refuse.
func hostileIDs() []string {
	nearlyFull := strings.Repeat("k", onceward.MaxLiteralID-1)
	return []string{
		"abc", "ABC", "Abc", "abc ", " abc", "abc\t", "abc\n", "abc\r\n", "abc\x00", "abc\x00\x00", "a\x00bc", "\x00", " ", "\t",
		"é", "e\u0301", "e", "ß", "ss", "ı", "i", "I", "á", "a", "😀", "😁", "\xff", "\xfe\xff", "\xc3", "\xc3\x28", "\xed\xa0\x80", "\ufffd",
		`'`, `"`, `''`, `\`, `\\`, `\'`, "`", "%", "_", "null", "NULL", "0", "00", "1", "1.0", "1e0", "true", "$1", "?", ":id", "--", "/*", "\u200b", "\ufeff",
		nearlyFull + "a", nearlyFull + "b", nearlyFull + "A", nearlyFull + " ", nearlyFull, nearlyFull + "\xff",
		nearlyFull + "aa", nearlyFull + "ab", strings.Repeat("k", 1024), strings.Repeat("k", 64<<10), strings.Repeat("k", 64<<10) + "x",
		"0190c8a4-5b6e-7abc-8def-0123456789ab", "0190C8A4-5B6E-7ABC-8DEF-0123456789AB", "0190c8a4-5b6e-7abc-8def-0123456789ac",
		"\x01\x19\x0c\x8a\x45\xb6\xe7\xab\xc8\xde\xf0\x12\x34\x56\x78\x9a\xb0", "\x02abc", "\x03abc",
	}
}

func (e *env[TTx]) claimBytes() {
	all := hostileIDs()
	for i, id := range all {
		if f := e.claim("c", rec(id, "x")); f[0] != onceward.Fresh {
			e.Errorf("%q is %v at first, although only these are finished: %.400q", onceward.Quote(id), names(f), all[:i])
		}
	}
	var rs []onceward.Record
	for _, id := range all {
		rs = append(rs, rec(id, "x"))
	}
	for i, f := range e.claim("c", rs...) {
		if f != onceward.Duplicate {
			e.Errorf("%s is %v at the second time", onceward.Quote(all[i]), names([]onceward.Found{f}))
		}
	}
	for i, f := range e.claim("d", rs...) { // all in one batch
		if f != onceward.Fresh {
			e.Errorf("%s is %v in a batch", onceward.Quote(all[i]), names([]onceward.Found{f}))
		}
	}
	// The longest stored forms, which differ in the last byte only.
	for _, last := range []string{"a", "b", "A", " ", "\x00", "\xff"} {
		e.wantClaim("e", onceward.Record{ID: strings.Repeat("\x02", 254) + last, Fingerprint: 1}, onceward.Fresh)
	}
}

func (e *env[TTx]) claimConsumers() {
	for _, c := range []string{"c", "C", "c ", "c\x00", "ç", "c\u0327", "\xff", strings.Repeat("c", 200), strings.Repeat("c", 199) + "d"} {
		e.wantClaim(c, rec("a", "x"), onceward.Fresh)
		e.wantClaim(c, rec("a", "x"), onceward.Duplicate)
	}
	// A name and an id that read the same when they are put together.
	e.wantClaim("ca", rec("b", "x"), onceward.Fresh)
	e.wantClaim("c", rec("ab", "x"), onceward.Fresh)
}

func (e *env[TTx]) claimRollback() {
	no := errors.New("no")
	err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		found, err := e.s.Claim(ctx, tx, "c", recs("a", "b"))
		if err != nil || found[0] != onceward.Fresh || found[1] != onceward.Fresh {
			e.Errorf("Claim = %v, %v", names(found), err)
		}
		return no
	})
	if !errors.Is(err, no) {
		e.Fatalf("InTx = %v, want the function's error", err)
	}
	e.wantRecorded("c", recs("a", "b"), false, false)
	e.wantClaim("c", recs("a")[0], onceward.Fresh)
}

func (e *env[TTx]) claimTwice() {
	e.must(e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		for _, want := range []onceward.Found{onceward.Fresh, onceward.Duplicate} {
			found, err := e.s.Claim(ctx, tx, "c", recs("a"))
			if err != nil {
				return err
			}
			if found[0] != want {
				e.Errorf("Claim = %v, want %v", names(found), names([]onceward.Found{want}))
			}
		}
		_, err := e.s.Claim(ctx, tx, "d", recs("a"))
		return err
	}))
	e.wantRecorded("c", recs("a"), true)
	e.wantRecorded("d", recs("a"), true)
}

func (e *env[TTx]) claimKnown() {
	for _, want := range []bool{false, true} {
		known, err := e.s.Known(e.ctx, "c")
		e.must(err)
		if known != want {
			e.Fatalf("Known = %v, want %v", known, want)
		}
		e.claim("other", rec("a", "x"))
		if !want {
			e.claim("c", rec("a", "x"))
		}
	}
	known, err := e.s.Known(e.ctx, "C")
	e.must(err)
	if known {
		e.Fatal("a consumer whose name differs in case is known")
	}
}

func (e *env[TTx]) claimForgotten() {
	e.claim("c", recs("a", "b")...)
	e.claim("d", recs("a")...)
	n, err := e.s.Forget(e.ctx, "c", "a", "unknown")
	e.must(err)
	if n != 1 {
		e.Fatalf("Forget = %d, want 1", n)
	}
	e.wantClaim("c", recs("a")[0], onceward.Fresh)
	e.wantClaim("c", recs("b")[0], onceward.Duplicate)
	e.wantClaim("d", recs("a")[0], onceward.Duplicate)
	long := strings.Repeat("k", 300) // kept as a digest
	e.claim("c", recs(long)...)
	if n, err = e.s.Forget(e.ctx, "c", long); n != 1 || err != nil {
		e.Fatalf("Forget of a long id = %d, %v, want 1", n, err)
	}
	if n, err = e.s.Forget(e.ctx, "c"); n != 0 || err != nil {
		e.Fatalf("Forget of nothing = %d, %v, want 0", n, err)
	}
}

func (e *env[TTx]) claimReopened() {
	if e.in.Reopen == nil {
		e.Skip("the store can't be opened twice")
	}
	e.claim("c", recs("a")...)
	e.put("q", msg("m", "x"))
	other := e.in.Reopen(e.T)
	recorded, err := other.Recorded(e.ctx, "c", recs("a", "b"))
	e.must(err)
	if !slices.Equal(recorded, []bool{true, false}) {
		e.Fatalf("Recorded = %v in the other store", recorded)
	}
	ls, err := other.Lease(e.ctx, onceward.LeaseParams{Queue: "q", Max: 1, For: long})
	e.must(err)
	if len(ls) != 1 || ls[0].Message.ID != "m" {
		e.Fatalf("leased %q from the other store", ids(ls))
	}
	e.wantLease(onceward.LeaseParams{Queue: "q"})
}
