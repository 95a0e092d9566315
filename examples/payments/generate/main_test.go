package main

import (
	"bytes"
	"os"
	"testing"
)

// The committed file is what the generator writes, in every release of Go.
func TestCommittedFileIsReproduced(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../payments.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got.Bytes(), want) {
		return
	}
	gotLines, wantLines := bytes.Split(got.Bytes(), []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range min(len(gotLines), len(wantLines)) {
		if !bytes.Equal(gotLines[i], wantLines[i]) {
			t.Fatalf("line %d differs:\n%s\nwas committed as\n%s", i+1, gotLines[i], wantLines[i])
		}
	}
	t.Fatalf("%d lines generated, %d committed", len(gotLines), len(wantLines))
}
