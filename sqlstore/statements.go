package sqlstore

import (
	"fmt"
	"reflect"
	"strings"
)

// statements are a dialect's SQL, one field per "-- name:" of its embedded file.
type statements struct {
	Lock, HasSchema, Version, Beat                                string
	Consumer, AddConsumer                                         string
	Claim, ClaimRows, ReturningID, Savepoint, RollbackTo, Release string
	Finished, ParkedRows, HeldKeys, Fences                        string
	DeleteRows, DeleteCounts, Forget, Known                       string
	CountAttempt, CountRowAttempt, ParkRow                        string
	Put, Due, DueInOrder, Take, Columns                           string
	FinishAck, FinishRequeue, FinishReject                        string
	TakeOver, Advance                                             string
	Stats, Rows, ReasonHas, InState, Replay, FindDead, Record     string
	FinishedFrom, WaitingFrom                                     string
	PurgeLook, Purge, PurgeCounts                                 string
}

// parseStatements panics if the file and the fields differ, which any test finds.
func parseStatements(file string, fill *strings.Replacer) *statements {
	var st statements
	v := reflect.ValueOf(&st).Elem()
	for _, part := range strings.Split(file, "-- name: ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		f := v.FieldByName(strings.TrimSpace(name))
		if !f.IsValid() {
			panic("onceward: no use for statement " + name)
		}
		f.SetString(fill.Replace(uncomment(text)))
	}
	for i := range v.NumField() {
		if v.Field(i).String() == "" {
			panic(fmt.Sprintf("onceward: statement %s is missing", v.Type().Field(i).Name))
		}
	}
	return &st
}

func uncomment(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// list puts n placeholders into a statement's {list}.
func list(stmt string, n int) string {
	return strings.Replace(stmt, "{list}", strings.Repeat("?,", n-1)+"?", 1)
}

// rows puts n rows of cols placeholders into a statement's {rows}.
func rows(stmt string, n, cols int) string {
	row := "(" + strings.Repeat("?,", cols-1) + "?)"
	return strings.Replace(stmt, "{rows}", strings.Repeat(row+",", n-1)+row, 1)
}
