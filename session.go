package onceward

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"
)

// item is a delivery on its way through the consumer, from receive to settle.
type item struct {
	Incoming
	record  Record
	broken  error // why it has no id
	skip    bool  // not matched
	suspect bool  // a handler may have started with it before
	waited  bool  // it comes from the queue Retries
	origin  string

	attempt   int      // starts of the handler, the coming one included
	inDoubt   bool     // a commit with it had an unknown outcome
	conflicts int      // rollbacks in a row because of another transaction, alone
	outages   int      // store failures in a row while it ran alone
	asides    int      // times it was put aside because of a twin
	parking   *Parking // what is to become of it once its twin lets go of it
	twin      int      // index of the same message earlier in the batch, -1 if none
}

// session is one subscription and the lanes it feeds.
type session struct {
	*run
	Session
	ctx   context.Context //nolint:containedctx // ends when the session is over, or the consumer stops
	end   context.CancelCauseFunc
	lanes []*lane
}

// session runs until the source ends or fails, the consumer stops, or a lane ends it. It reports
// whether anything was received.
func (r *run) session() (received bool, err error) {
	sub, err := r.src.Subscribe(r.soft, SubscribeParams{Consumer: r.name, Prefetch: r.prefetch()})
	if err != nil {
		return false, err
	}
	r.resume()
	ctx, end := context.WithCancelCause(r.soft)
	s := &session{run: r, Session: sub, ctx: ctx, end: end}
	if !r.src.Capabilities().Hints {
		r.suspects.expect(r.cfg.Lanes * r.cfg.MaxBatch)
	}
	var lanes sync.WaitGroup
	for range r.cfg.Lanes {
		l := newLane(r, s)
		s.lanes = append(s.lanes, l)
		lanes.Go(l.loop)
	}
	received, err = s.pump()
	if !errors.Is(err, io.EOF) {
		end(err) // what has not started goes back
	}
	for _, l := range s.lanes {
		close(l.in)
	}
	lanes.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause // a lane has ended it, or the consumer stops
	}
	end(nil)
	closing, cancel := context.WithTimeout(context.WithoutCancel(r.soft), closeWait)
	defer cancel()
	if cerr := sub.Close(closing); cerr != nil {
		r.log.Warn("closing the session; what it held will be delivered again", "error", cerr)
	}
	return received, err
}

// prefetch lets a batch wait while another one is being processed.
func (r *run) prefetch() int { return 3 * r.cfg.Lanes * r.cfg.MaxBatch }

// pump receives and routes until the session is over.
func (s *session) pump() (received bool, err error) {
	for {
		s.held.wait(s.ctx)
		in, err := s.Receive(s.ctx, s.cfg.MaxBatch)
		if len(in) > 0 {
			received = true
			if err := s.route(in); err != nil {
				return true, err
			}
		}
		if err != nil {
			return received, err
		}
	}
}

func (s *session) route(in []Incoming) error {
	s.counts.received.Add(int64(len(in)))
	items := make([]item, len(in))
	for i := range in {
		s.prepare(&items[i], in[i])
		s.held.add(int64(len(in[i].Body)))
	}
	if err := s.sawID(items); err != nil {
		s.counts.givenBack.Add(int64(len(in)))
		s.giveBack(pointers(items))
		return err
	}
	for i := range items {
		l := s.lane(&items[i])
		select {
		case l.in <- &items[i]:
		case <-s.ctx.Done():
			s.counts.givenBack.Add(int64(len(items) - i))
			s.giveBack(pointers(items[i:]))
			return context.Cause(s.ctx)
		}
	}
	return nil
}

// prepare finds out what an incoming message is.
func (s *session) prepare(it *item, in Incoming) {
	it.Incoming, it.attempt, it.twin = in, in.Attempts+1, -1
	var err error
	if match := s.cfg.Match; match != nil {
		var fits bool
		fits, err = shielded(func(m *Message) (bool, error) { return match(m), nil }, &it.Message)
		if it.skip = err == nil && !fits; it.skip {
			return
		}
	}
	s.identify(it)
	if err != nil && s.needsID {
		it.broken = fmt.Errorf("onceward: Config.Match: %w", err)
	}
	it.suspect = in.Redelivered
	if !it.suspect {
		it.suspect = s.suspects.next()
	}
}

// identify fills in what the inbox needs to know.
func (r *run) identify(it *item) {
	if f := r.cfg.Key; f != nil {
		key, err := shielded(f, &it.Message)
		if err != nil {
			it.broken = fmt.Errorf("onceward: no ordering key: %w", err)
		}
		it.Key = key
	}
	id, err := r.cfg.Identity.of(&it.Message)
	if !r.needsID {
		it.ID = id
		it.broken = nil
		return
	}
	if err != nil {
		it.broken = err
		it.record.ID = noID(&it.Incoming)
	} else {
		it.ID = id
		it.record.ID = StoredID(id)
	}
	it.record.Fingerprint = r.fingerprint(it.Body)
	if r.cfg.KeepOrder {
		it.record.OrderKey = it.Key
	}
}

// fingerprint is 0, which is not compared, where another body makes no difference.
func (r *run) fingerprint(body []byte) int64 {
	if r.cfg.Mismatch == MismatchDuplicate {
		return 0
	}
	return Fingerprint(body)
}

// sawID stops a consumer whose messages never have an id.
func (s *session) sawID(items []item) error {
	if s.idSeen {
		return nil
	}
	var broken *item
	for i := range items {
		switch it := &items[i]; {
		case it.skip:
		case !errors.Is(it.broken, ErrNoID):
			s.idSeen = true
			return nil
		case broken == nil:
			broken = it
		}
	}
	if broken == nil {
		return nil
	}
	known, err := s.work.known(s.ctx)
	if err != nil {
		return err
	}
	if s.idSeen = known; known {
		return nil
	}
	return Permanent(fmt.Errorf("this consumer has never seen a message with an id, and none of the %d it received has one; "+
		"set Config.Identity to where the id is, or remove the messages: %w", len(items), broken.broken))
}

var laneSeed = maphash.MakeSeed()

// lane keeps messages of one key, or without a key those of one id, in one lane.
func (s *session) lane(it *item) *lane {
	if len(s.lanes) == 1 {
		return s.lanes[0]
	}
	by := it.Key
	if by == "" {
		by = it.ID
	}
	return s.lanes[maphash.String(laneSeed, by)%uint64(len(s.lanes))]
}

// settle tells the source what became of items. If the source can't take it the session is over: what
// is not settled comes again, as a duplicate.
func (s *session) settle(items []*item, verdict func(*item) Settlement) bool {
	ss := make([]Settlement, 0, len(items))
	for _, it := range items {
		s.held.add(-int64(len(it.Body)))
		if v := verdict(it); it.record.Row == nil && !it.waited {
			v.Incoming = it.Incoming
			ss = append(ss, v)
		}
	}
	if len(ss) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), settleWait)
	defer cancel()
	err := s.Settle(ctx, ss...)
	if err == nil {
		return true
	}
	if errors.Is(err, ErrStale) {
		s.log.Info("settled too late: the session no longer owns it, it will come again", "messages", len(ss))
	} else {
		s.log.Warn("settling failed; starting a new session", "messages", len(ss), "error", err)
		s.end(fmt.Errorf("settle: %w", err))
	}
	return false
}

func acked(*item) Settlement { return Settlement{Verdict: Ack} }

// giveBack returns what was not started, uncharged.
func (s *session) giveBack(items []*item) {
	ss := make([]Settlement, len(items))
	for i, it := range items {
		s.held.add(-int64(len(it.Body)))
		ss[i] = Settlement{Incoming: it.Incoming, Verdict: Requeue, Attempts: it.Attempts}
	}
	if len(ss) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), closeWait)
	defer cancel()
	if err := s.Settle(ctx, ss...); err != nil && !errors.Is(err, ErrStale) {
		s.log.Debug("giving back failed; closing the session does it", "error", err)
	}
}

func pointers(items []item) []*item {
	ps := make([]*item, len(items))
	for i := range items {
		ps[i] = &items[i]
	}
	return ps
}

// suspects counts how many deliveries of a source without hints may still be repeats of messages that
// a handler had started with when its process died: as many as can be in hand at once.
type suspects struct{ left atomic.Int64 }

func (s *suspects) expect(n int) { s.left.Store(int64(n)) }

func (s *suspects) next() bool { return s.left.Load() > 0 }

func (s *suspects) met() { s.left.Add(-1) }
