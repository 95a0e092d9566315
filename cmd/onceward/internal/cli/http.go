package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

// serve answers /live, /ready, /metrics and /stats if the config has an address for it.
func (w *worker) serve(ctx context.Context) (stop func(), err error) {
	if w.store.HTTP == "" {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.store.HTTP)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(rw http.ResponseWriter, _ *http.Request) { reply(rw, http.StatusOK, "text/plain", "live\n") })
	mux.HandleFunc("GET /ready", w.ready)
	mux.HandleFunc("GET /stats", w.stats)
	mux.HandleFunc("GET /metrics", w.metrics)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("http", "err", err)
		}
	}()
	w.log.Info("http", "address", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-finished
	}, nil
}

func reply(rw http.ResponseWriter, status int, kind, text string) {
	rw.Header().Set("Content-Type", kind+"; charset=utf-8")
	rw.WriteHeader(status)
	_, _ = rw.Write([]byte(text)) // whoever asked may have gone
}

// ready is 200 when every consumer reads, or has come to its end.
func (w *worker) ready(rw http.ResponseWriter, _ *http.Request) {
	status := http.StatusOK
	var b strings.Builder
	for _, c := range w.consumers {
		state := c.Stats().State
		fmt.Fprintf(&b, "%s: %s", c.Name(), state)
		if since, why := w.states.paused(c.Name()); !since.IsZero() {
			fmt.Fprintf(&b, " for %s: %v", time.Since(since).Round(time.Second), why)
		}
		b.WriteByte('\n')
		if state == onceward.Starting || state == onceward.Paused || state == onceward.Draining {
			status = http.StatusServiceUnavailable
		}
	}
	reply(rw, status, "text/plain", b.String())
}

// stats has one summary a line.
func (w *worker) stats(rw http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	for _, c := range w.consumers {
		line, err := json.Marshal(summarize(c))
		if err != nil {
			reply(rw, http.StatusInternalServerError, "text/plain", err.Error()+"\n")
			return
		}
		b.Write(append(line, '\n'))
	}
	reply(rw, http.StatusOK, "application/x-ndjson", b.String())
}

// metrics is the text format that Prometheus reads.
func (w *worker) metrics(rw http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	metric := func(name, kind, help string, value func(onceward.Stats) []labelled) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for _, c := range w.consumers {
			for _, v := range value(c.Stats()) {
				fmt.Fprintf(&b, "%s{consumer=\"%s\"%s} %d\n", name, label(c.Name()), v.label, v.n)
			}
		}
	}
	one := func(n int64) []labelled { return []labelled{{"", n}} }
	metric("onceward_received_total", "counter", "Deliveries from the source.",
		func(s onceward.Stats) []labelled { return one(s.Received) })
	metric("onceward_messages_total", "counter", "Messages by what became of them.", outcomes)
	metric("onceward_handler_failures_total", "counter", "Handler calls that failed.",
		func(s onceward.Stats) []labelled { return one(s.Failed) })
	metric("onceward_handler_retries_total", "counter", "Handler calls with a message that had waited.",
		func(s onceward.Stats) []labelled { return one(s.Retried) })
	metric("onceward_waiting", "gauge", "Messages that wait for a retry.",
		func(s onceward.Stats) []labelled { return one(s.Waiting) })
	metric("onceward_running", "gauge", "1 while the consumer runs, 0 while it starts, is paused, drains or has stopped.",
		func(s onceward.Stats) []labelled {
			if s.State == onceward.Running {
				return one(1)
			}
			return one(0)
		})
	reply(rw, http.StatusOK, "text/plain; version=0.0.4", b.String())
}

type labelled struct {
	label string
	n     int64
}

func outcomes(s onceward.Stats) []labelled {
	return []labelled{
		{`,outcome="processed"`, s.Processed}, {`,outcome="duplicate"`, s.Duplicates}, {`,outcome="skipped"`, s.Skipped},
		{`,outcome="dead"`, s.Dead}, {`,outcome="given_back"`, s.GivenBack},
	}
}

// label escapes a label's value.
func label(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
}
