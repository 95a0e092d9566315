package cli

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// asGiven hands a text argument over byte by byte. The parser's own way would replace what is not
// UTF-8, and a message's id and a path are bytes.
func asGiven(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	target.SetString(t.String())
	return nil
}

// idArg is a message id on the command line: its bytes, or, if it begins with a double quote, a Go
// string literal, as lists print ids.
type idArg string

// Decode reads the argument.
func (i *idArg) Decode(ctx *kong.DecodeContext) error {
	t, err := ctx.Scan.PopValue("id")
	if err != nil {
		return err
	}
	id, err := parseID(t.String())
	*i = idArg(id)
	return err
}

func parseID(arg string) (string, error) {
	if !strings.HasPrefix(arg, `"`) {
		return arg, nil
	}
	id, err := strconv.Unquote(arg)
	switch {
	case err == nil:
		return id, nil
	case strings.Contains(arg, `"… (`):
		return "", fmt.Errorf("%s is the beginning of an id only, as lists print a long one; --json prints all of it", arg)
	}
	return "", fmt.Errorf("%q begins with a double quote, but is not an id as lists print it, like \"a\\xff\"; an id that begins with a double quote itself is written \"\\\"a\"", arg)
}

// dashed adds what to do about an argument that was taken for a flag.
func dashed(err error) error {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "unknown flag"):
		return errors.New(text + "\nAn argument that begins with a dash goes after --, as in: onceward explain CONFIG -- -0")
	case strings.Contains(text, "expected") && strings.Contains(text, "flag)"):
		return errors.New(text + "\nA value that begins with a dash goes after =, as in: --id=-0")
	}
	return err
}
