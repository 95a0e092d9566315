package consumers

import (
	"context"
	"regexp"
	"strings"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

// Run runs the consumer. Its errors name fields as the config file does.
func (c *Consumer) Run(ctx context.Context) error {
	err := c.Consumer.Run(ctx)
	if err == nil {
		return nil
	}
	if text := reword(err.Error(), c.place); text != err.Error() {
		return &reworded{text, err}
	}
	return err
}

type reworded struct {
	text string
	error
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.error }

var (
	engineField = regexp.MustCompile(`\bConfig\.[A-Z]\w*`)
	upper       = regexp.MustCompile(`\B[A-Z]`)
)

// reword replaces names of the engine's fields, such as Config.Identity, by those of the config file.
func reword(text string, place func(field string) string) string {
	return engineField.ReplaceAllStringFunc(text, func(name string) string {
		name = strings.TrimPrefix(name, "Config.")
		if name == "Identity" {
			return place("id")
		}
		return place(strings.ToLower(upper.ReplaceAllString(name, "_$0")))
	})
}

// placeOf names a consumer's field and says where it is.
func placeOf(cfg *config.Config, k *config.Consumer) func(field string) string {
	return func(field string) string { return cfg.Place(k.Field(field)) }
}
