// Package handlers has what a consumer of the program can do with a message.
package handlers

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/jsonpath"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/sqltext"
)

// values takes the parameters out of a body, in the order of params. Its error is permanent: the
// body will not be another on the next attempt.
func values(d sqltext.Dialect, params []config.Param, body []byte) ([]any, error) {
	if len(params) == 0 {
		return nil, nil
	}
	if !json.Valid(body) {
		return nil, onceward.Permanent(jsonpath.ErrNotJSON)
	}
	vs := make([]any, len(params))
	for i := range params {
		v, err := params[i].Path.FindValid(body)
		if err == nil {
			vs[i], err = value(d, v)
		}
		if err != nil {
			return nil, onceward.Permanent(fmt.Errorf("parameter :%s: %w", params[i].Name, err))
		}
	}
	return vs, nil
}

// value is a JSON value as the database gets it, with nothing lost: integers as int64, other numbers
// and integers that int64 can't hold as decimal text, for MySQL as a [decimal] if it has room for it,
// true and false as 1 and 0, objects and arrays as their JSON text.
//
// Postgres knows the type of each parameter and reads it from text, exactly, so it gets texts only.
func value(d sqltext.Dialect, v jsonpath.Value) (any, error) {
	switch {
	case v.IsString():
		return v.Text()
	case v.IsNull():
		return nil, nil //nolint:nilnil // NULL
	case d == sqltext.Postgres:
		return string(v), nil
	case v.IsNumber():
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n, nil
		}
		if d == sqltext.MySQL {
			return mysqlNumber(string(v)), nil
		}
		return string(v), nil
	case v[0] == 't':
		return int64(1), nil
	case v[0] == 'f':
		return int64(0), nil
	}
	return string(v), nil
}

// decimal is a number with so many digits after the point.
type decimal struct {
	text   string
	places int
}

// mysqlNumber is a JSON number as a decimal, or as its text if MySQL's decimals can't hold it.
func mysqlNumber(text string) any {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	e := 0
	if exponent != "" {
		var err error
		if e, err = strconv.Atoi(exponent); err != nil {
			return text
		}
	}
	places := max(len(fraction)-e, 0)
	digits := max(len(whole)+e, 1)
	if e > sqltext.MostDigits || e < -sqltext.MostDigits || places > sqltext.MostPlaces || digits+places > sqltext.MostDigits {
		return text
	}
	return decimal{text, places}
}
