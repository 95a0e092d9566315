// Package handlers has what a consumer of the program can do with a message.
package handlers

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/jsonpath"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

// values takes the parameters out of a body, in the order of params. Its error is permanent: the
// body will not be another on the next attempt.
func values(params []config.Param, body []byte) ([]any, error) {
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
			vs[i], err = value(v)
		}
		if err != nil {
			return nil, onceward.Permanent(fmt.Errorf("parameter :%s: %w", params[i].Name, err))
		}
	}
	return vs, nil
}

// value is a JSON value as the database gets it, with nothing lost: integers as int64, other numbers
// and integers that int64 can't hold as decimal text, true and false as 1 and 0, objects and arrays
// as their JSON text.
func value(v jsonpath.Value) (any, error) {
	switch {
	case v.IsString():
		return v.Text()
	case v.IsNull():
		return nil, nil //nolint:nilnil // NULL
	case v.IsNumber():
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n, nil
		}
		return string(v), nil
	case v[0] == 't':
		return int64(1), nil
	case v[0] == 'f':
		return int64(0), nil
	}
	return string(v), nil
}
