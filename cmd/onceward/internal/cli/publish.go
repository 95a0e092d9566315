package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/jsonpath"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/consumers"
	"github.com/onceward/onceward/cmd/onceward/internal/sources"
)

type publishCmd struct {
	Config string   `arg:"" help:"The config file." placeholder:"CONFIG"`
	Queue  string   `arg:"" help:"The queue, which a consumer reads as queue:NAME."`
	File   string   `arg:"" optional:"" help:"NDJSON, one message a line; standard input if left out."`
	ID     []string `required:"" sep:"none" name:"id" help:"Where a message's id is: a JSON path such as $.id, or content. Repeated, the parts of an id; then a part may be a constant text."`
	Key    string   `help:"JSON path of the ordering key."`
	Lines  bool     `help:"Lines are any text, not JSON."`
	JSON   bool     `help:"Print the result as JSON."`
}

const publishBatch = 500

// Run is the command.
func (c *publishCmd) Run(ctx context.Context, a *app) (err error) {
	p := &publication{cmd: c}
	if err := p.parse(); err != nil {
		return &exitError{exitConfig, err}
	}
	cfg, err := config.LoadStore(c.Config)
	if err != nil {
		return err
	}
	in := a.in
	if c.File != "" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // nothing was written
		in = f
	}
	o, err := open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if err := o.makeTables(ctx); err != nil {
		return err
	}
	p.store = o.store
	err = p.run(ctx, in)
	return errors.Join(p.report(a.out), err)
}

// publication is one run of publish.
type publication struct {
	cmd   *publishCmd
	id    config.ID
	key   *jsonpath.Path
	store consumers.Store

	batch    []*onceward.Message
	accepted int
}

func (p *publication) parse() (err error) {
	if p.id, err = config.ParseID(p.cmd.ID); err != nil {
		return fmt.Errorf("--id: %w", err)
	}
	if p.cmd.Key != "" {
		key, err := jsonpath.Parse(p.cmd.Key)
		if err != nil {
			return fmt.Errorf("--key: %w", err)
		}
		p.key = &key
	}
	if p.cmd.Queue == "" {
		return errors.New("the queue's name is empty")
	}
	if p.id.HasHeader() {
		return errors.New("--id: lines have no headers; use a JSON path such as $.id, or content")
	}
	if p.cmd.Queue == onceward.Retries {
		return fmt.Errorf("%s is no queue to publish to: consumers keep their retries there", p.cmd.Queue)
	}
	return nil
}

// run publishes until the first message that can't be; those before it stay published.
func (p *publication) run(ctx context.Context, in io.Reader) error {
	err := sources.EachLine(in, func(number int64, body []byte) error {
		if len(body) == 0 && !p.cmd.Lines {
			return nil // an empty line between JSON documents
		}
		m, err := p.message(body)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		p.batch = append(p.batch, m)
		if len(p.batch) >= publishBatch {
			return p.flush(ctx)
		}
		return nil
	})
	return errors.Join(err, p.flush(ctx))
}

func (p *publication) message(body []byte) (*onceward.Message, error) {
	if !p.cmd.Lines && !json.Valid(body) {
		return nil, errors.New("not JSON; use --lines for other text")
	}
	m := &onceward.Message{Body: body}
	var err error
	if m.ID, err = consumers.MessageID(p.id, m); err != nil {
		return nil, fmt.Errorf("no id: %w", err)
	}
	if m.ID == "" {
		return nil, errors.New("no id: it is empty")
	}
	if p.key != nil {
		v, err := p.key.Find(body)
		if err != nil {
			return nil, fmt.Errorf("no key: %w", err)
		}
		if m.Key, err = v.Text(); err != nil {
			return nil, fmt.Errorf("no key: %w", err)
		}
	}
	return m, nil
}

func (p *publication) flush(ctx context.Context) error {
	if len(p.batch) == 0 {
		return nil
	}
	err := p.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return p.store.Append(ctx, tx, p.cmd.Queue, p.batch...)
	})
	if err == nil {
		p.accepted += len(p.batch)
	}
	p.batch = nil
	return err
}

func (p *publication) report(out io.Writer) error {
	if p.cmd.JSON {
		return json.NewEncoder(out).Encode(map[string]any{"queue": p.cmd.Queue, "accepted": p.accepted})
	}
	_, err := fmt.Fprintf(out, "%s accepted for queue %s; where one with the same id waits there already, that one stays as it is, also if the bodies differ\n",
		counted(p.accepted, "message"), p.cmd.Queue)
	return err
}
