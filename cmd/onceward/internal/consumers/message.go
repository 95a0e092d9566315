// Package consumers makes consumers of what a config file says.
package consumers

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/sources"
)

// identity finds a message's id as the config says.
func identity(id config.ID) onceward.Identity {
	if id.IsZero() {
		return onceward.ByMessageID()
	}
	return onceward.IdentifyBy(func(m *onceward.Message) (string, error) {
		if err := sources.TooLong(m); err != nil {
			return "", err
		}
		return MessageID(id, m)
	})
}

// MessageID finds a message's id as the config says. The id may be empty.
func MessageID(id config.ID, m *onceward.Message) (string, error) {
	switch {
	case id.Content:
		sum := sha256.Sum256(m.Body)
		return "sha256:" + hex.EncodeToString(sum[:]), nil
	case id.Single != nil:
		return pick(id.Single, m)
	case id.Parts != nil:
		return parts(id.Parts, m)
	}
	return m.ID, nil
}

// pick takes a place's text.
func pick(p *config.Pick, m *onceward.Message) (string, error) {
	switch {
	case p.Path != nil:
		v, err := p.Path.Find(m.Body)
		if err != nil {
			return "", err
		}
		return v.Text()
	case p.Header != "":
		return m.Headers.Get(p.Header), nil
	}
	return p.Constant, nil
}

// parts joins several places with [onceward.ID]. A part that is empty or not there is an error: the
// id would not be the message's own.
func parts(ps []config.Pick, m *onceward.Message) (string, error) {
	vs := make([]any, len(ps))
	for i := range ps {
		v, err := part(&ps[i], m)
		if err != nil {
			return "", err
		}
		vs[i] = v
	}
	return onceward.ID(vs...), nil
}

// part is a whole number as such, so that 1 and "1" stay apart; anything else as its text.
func part(p *config.Pick, m *onceward.Message) (any, error) {
	if p.Path != nil {
		v, err := p.Path.Find(m.Body)
		if err != nil {
			return nil, err
		}
		if v.IsNumber() {
			if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				return n, nil
			}
		}
	}
	s, err := pick(p, m)
	if err == nil && s == "" {
		err = errors.New("a part of the id is empty")
	}
	return s, err
}

// match says whether every condition holds. What is not JSON matches, so that it becomes a dead
// letter and is not passed over; JSON without the value does not.
func match(cs []config.Condition) func(*onceward.Message) bool {
	if len(cs) == 0 {
		return nil
	}
	return func(m *onceward.Message) bool {
		if !json.Valid(m.Body) || sources.TooLong(m) != nil {
			return true
		}
		for i := range cs {
			if !holds(&cs[i], m.Body) {
				return false
			}
		}
		return true
	}
}

func holds(c *config.Condition, body []byte) bool {
	v, err := c.Path.FindValid(body)
	if err != nil {
		return false
	}
	if c.Literal {
		return bytes.Equal(v, []byte(c.Text))
	}
	if !v.IsString() {
		return false
	}
	s, err := v.Text()
	return err == nil && s == c.Text
}
