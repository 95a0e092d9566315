// Package cli has the program's commands.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitConfig = 2 // the config file, or the command line
	exitDead   = 3 // run --strict: dead letters remain
)

// app is what commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
}

type commands struct {
	Run     runCmd        `cmd:"" help:"Run the consumers of a config file until their sources end or a signal comes."`
	Demo    demoCmd       `cmd:"" help:"Kill a worker again and again, and count what was lost or repeated."`
	Worker  demoWorkerCmd `cmd:"" name:"demo-worker" hidden:""`
	Check   checkCmd      `cmd:"" help:"Check a config file, its database and its sources without processing anything."`
	Publish publishCmd    `cmd:"" help:"Put messages into a queue of the store."`
	Migrate migrateCmd    `cmd:"" help:"Create or inspect the store's own tables."`
	Stats   statsCmd      `cmd:"" help:"Count the messages that wait in the store."`
	Dead    deadCmd       `cmd:"" help:"Look at dead letters, replay or discard them."`
	Explain explainCmd    `cmd:"" help:"Tell what the store knows about a message id."`
	Forget  forgetCmd     `cmd:"" help:"Let a finished message be processed again when it comes again."`
	Purge   purgeCmd      `cmd:"" help:"Remove old records of finished messages now."`
	Version versionCmd    `cmd:"" help:"Print the program's version."`
}

// halt is how kong ends the program after --help.
type halt int

// Main runs the command that args name and returns the exit code.
func Main(args []string, in io.Reader, out, errs io.Writer) (code int) {
	defer func() {
		if h, ok := recover().(halt); ok {
			code = int(h)
		}
	}()
	a := &app{in: in, out: out, err: errs}
	parser := kong.Must(&commands{},
		kong.Name("onceward"),
		kong.Description("Processes messages effectively once: whatever is redelivered, retried, published twice or killed half-way."),
		kong.UsageOnError(),
		kong.Writers(out, errs),
		kong.Exit(func(code int) { panic(halt(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Bind(a),
		kong.KindMapper(reflect.String, kong.MapperFunc(asGiven)),
	)
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(errs, "onceward: %v\nTry: onceward --help\n", dashed(err))
		return exitConfig
	}
	parsed.BindTo(context.Background(), (*context.Context)(nil))
	return a.exit(parsed.Run())
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

// exit reports an error and returns the exit code that stands for it.
func (a *app) exit(err error) int {
	if err == nil {
		return exitDone
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(a.err, explained(text, err))
	}
	if own, ok := errors.AsType[*exitError](err); ok {
		return own.code
	}
	if isFault(err) {
		return exitConfig
	}
	return exitFailed
}

func isFault(err error) bool {
	_, ok := errors.AsType[*config.Error](err)
	return ok
}

// explained adds what a person can do about an error.
func explained(text string, err error) string {
	if !isFault(err) && !strings.HasPrefix(text, "onceward: ") {
		text = "onceward: " + text
	}
	if errors.Is(err, onceward.ErrNoSchema) {
		text += "\nTry: onceward migrate up CONFIG"
	}
	return text
}
