package conformance

func childProcess() func() { return nil }
