package main

import "strings"

// planOddities puts lines into the file that a careless consumer would lose, merge, repeat or stop
// at. None stands at the very start, where a consumer has not seen any id yet.
func (f *feed) planOddities() {
	f.planUnreadable()
	f.planWithoutID()
	f.planTwins()
	f.planCorrections()
}

// planUnreadable: lines that are no JSON, some of them several times: each is a message of its own.
func (f *feed) planUnreadable() {
	cut := f.payment().line()
	cut = cut[:len(cut)*2/3]
	for _, i := range []int{700, 701, 9_000, 19_499} {
		f.plan(i, "")
	}
	f.plan(1_200, cut)
	f.plan(14_000, cut, cut)
	f.plan(5_000, "   ")
	f.plan(16_500, `{"payment_id":"pay_nocomma" "type":"payment"}`)
}

func (f *feed) planWithoutID() {
	missing, empty := f.payment(), f.payment()
	missing.ID, empty.ID = nil, ""
	f.plan(2_000, missing.line(), missing.line())
	f.plan(12_345, missing.line())
	f.plan(2_500, empty.line())
	f.plan(6_000, strings.Replace(missing.line(), `{`, `{"payment_id":null,`, 1))
	f.plan(6_001, strings.Replace(missing.line(), `{`, `{"payment_id":{"nested":"pay_1"},`, 1))
}

// planTwins: ids that differ only in case, in a space, in the Unicode form, in leading zeros or far
// behind. They are different payments. The last id is written in two ways: that is one payment, and
// the second way is another body.
func (f *feed) planTwins() {
	long := strings.Repeat("long-", 60)
	for i, ids := range [][]string{
		{"pay_CaseOnly42", "pay_caseonly42", "PAY_CASEONLY42"},
		{"pay_space", "pay_space ", " pay_space", "pay_space  ", "pay_space\t", "pay_space\u00a0"},
		{"pay_caf\u00e9", "pay_cafe\u0301"},
		{"12", "012", "12.0", "1.2e1", "+12", "-12"},
		{"0195a0c0-aaaa-7bbb-8ccc-0123456789ab", "0195A0C0-AAAA-7BBB-8CCC-0123456789AB", "0195a0c0aaaa7bbb8ccc0123456789ab"},
		{long + "1", long + "2", long},
		{"pay_ß", "pay_ss", "pay_SS"},
		{"true", "null", "'", "%", "_", "a:b", "a%3Ab", "pay_\u0000", "pay_", "\u0001"},
	} {
		p := f.payment() // all have the same body but for the id
		for n, id := range ids {
			p.ID = id
			f.plan(3_000+1_000*i, p.line())
			f.plan(3_000+1_000*i+200*n, p.line()) // and each comes again
		}
	}
	p := f.payment()
	p.ID = "pay_written_twice"
	f.plan(13_000, p.line(), strings.Replace(p.line(), "pay_w", `pay_\u0077`, 1))
}

// planCorrections: a payment to an account that does not exist is a dead letter. Sent again with the
// right account it is another body under an id that no payment was ever made with.
func (f *feed) planCorrections() {
	for i := range 3 {
		wrong := f.payment()
		right := wrong
		wrong.Account = f.of(unknownAccounts)
		f.plan(4_000+5_000*i, wrong.line())
		f.plan(4_600+5_000*i, right.line())
		f.plan(4_800+5_000*i, wrong.line(), right.line())
	}
}
