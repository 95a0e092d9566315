// Command onceward processes messages effectively once, without a line of Go: see onceward --help.
package main

import (
	"os"

	"github.com/onceward/onceward/cmd/onceward/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
