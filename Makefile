.PHONY: help build test unit lint format services-down clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

build: ## the program, to bin/onceward
	CGO_ENABLED=0 go build -o bin/ ./cmd/onceward

test: unit lint ## everything: builds, tests with the race detector, linters; installs and starts what it needs

unit: ## the tests alone
	@scripts/test

lint: ## golangci-lint and govulncheck, pinned in scripts/versions
	@scripts/lint

format: ## gofmt and imports
	@bin=$$(scripts/tools golangci-lint) && for dir in $$(go list -m -f '{{.Dir}}'); do (cd $$dir && $$bin fmt); done

services-down: ## stop the servers that the tests have started
	@scripts/services down

clean: services-down ## remove what was built, pinned tools too
	rm -rf bin .tools .services
