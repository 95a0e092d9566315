package cli

type demoCmd struct{}

// Run is the command.
func (c *demoCmd) Run(a *app) error { return nil }
