module github.com/onceward/onceward/cmd/onceward

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/onceward/onceward v0.0.0
)

replace github.com/onceward/onceward => ../../
