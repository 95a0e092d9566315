package cli

import (
	"errors"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

// states remembers since when, and why, consumers are paused.
type states struct {
	mu sync.Mutex
	of map[string]pause
}

type pause struct {
	state onceward.State
	since time.Time // zero unless paused
	why   error
}

func newStates() *states { return &states{of: map[string]pause{}} }

// changed is a hook.
func (s *states) changed(consumer string, state onceward.State, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of[consumer]
	switch {
	case state != onceward.Paused:
		p.since = time.Time{}
	case p.state != onceward.Paused:
		p.since = time.Now()
	}
	p.state = state
	if why != nil {
		p.why = why
	}
	s.of[consumer] = p
}

// paused returns since when a consumer is paused, and why; a zero time if it is not.
func (s *states) paused(consumer string) (since time.Time, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of[consumer]
	if p.why == nil {
		p.why = errors.New("no reason was given")
	}
	return p.since, p.why
}
