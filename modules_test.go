package onceward_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const rootModule = "github.com/onceward/onceward"

// suites are the packages that only tests call: those of adapters, and our own. They alone may import
// package testing.
var suites = []string{rootModule + "/storetest", rootModule + "/brokertest", rootModule + "/internal/leak"}

// Who imports the core gets no other module with it.
func TestRootModuleRequiresNothing(t *testing.T) {
	t.Parallel()
	var mod struct {
		Module struct {
			Path string `json:"path"`
		} `json:"module"`
		Require []any `json:"require"`
		Replace []any `json:"replace"`
	}
	if err := json.Unmarshal(goCommand(t, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != rootModule {
		t.Errorf("the module is %s, want %s", mod.Module.Path, rootModule)
	}
	if len(mod.Require) > 0 || len(mod.Replace) > 0 {
		t.Errorf("go.mod must not require or replace anything: %+v", mod)
	}
}

// Package testing adds to what a program links, so neither the root module's packages nor any program
// of the repository carry it, not even by way of another package.
func TestOnlySuitesLinkTesting(t *testing.T) {
	t.Parallel()
	const format = "{{.Module.Path}} {{.Name}} {{.ImportPath}}{{range .Deps}} {{.}}{{end}}"
	seen := 0
	for line := range strings.Lines(string(goCommand(t, "list", "-f", format, "work"))) {
		fields := strings.Fields(line)
		module, name, path, deps := fields[0], fields[1], fields[2], fields[3:]
		if slices.Contains(suites, path) || module != rootModule && name != "main" {
			continue
		}
		seen++
		if slices.Contains(deps, "testing") {
			t.Errorf("package %s imports testing, itself or by way of another package", path)
		}
	}
	if seen < 2 {
		t.Errorf("go list named %d packages only", seen)
	}
}

func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}
