package sqlstore

import (
	"fmt"
	"reflect"
	"strings"
)

// statements are a dialect's SQL, one field per "-- name:" of its embedded file. What only a dialect
// itself uses is in own.
type statements struct {
	HasSchema, Version, Beat                        string
	Consumer, AddConsumer                           string
	Finished, ParkedRows, HeldKeys, Fences          string
	DeleteRows, DeleteCounts, Forget, Known         string
	CountAttempt, Attempts                          string
	CountRowAttempt, RowAttempts, ParkRow           string
	Put, Due, DueInOrder, DueLater, DueLaterInOrder string
	SkipLocked, Take, Columns, SeqIn                string
	Lock, FinishAck, FinishRequeue, FinishReject    string
	TakeOver, Position, Advance                     string
	Stats, Rows, ReasonHas, InState, Replay         string
	FindDead, ForUpdate, Record                     string
	FinishedFrom, WaitingFrom                       string
	Purge, PurgeCounts                              string

	own map[string]string
}

// parseStatements panics if a field has no statement, or own is not what is left over, which any test
// finds.
func parseStatements(file string, fill *strings.Replacer, own ...string) *statements {
	st := statements{own: map[string]string{}}
	texts := map[string]string{}
	for _, part := range strings.Split(file, "-- name: ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		texts[strings.TrimSpace(name)] = fill.Replace(uncomment(text))
	}
	take := func(name string) string {
		text, ok := texts[name]
		if !ok {
			panic(fmt.Sprintf("onceward: statement %s is missing", name))
		}
		delete(texts, name)
		return text
	}
	v := reflect.ValueOf(&st).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.String {
			v.Field(i).SetString(take(v.Type().Field(i).Name))
		}
	}
	for _, name := range own {
		st.own[name] = take(name)
	}
	if len(texts) > 0 {
		panic(fmt.Sprintf("onceward: no use for statements %v", texts))
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
