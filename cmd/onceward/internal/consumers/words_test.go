package consumers

import "testing"

func TestErrorsNameTheFieldsOfTheConfigFile(t *testing.T) {
	place := func(field string) string { return "consumers[0]." + field }
	for text, want := range map[string]string{
		"set Config.Identity to where the id is": "set consumers[0].id to where the id is",
		"Config.MaxBatch must be 1":              "consumers[0].max_batch must be 1",
		"raise Config.Retention, or not":         "raise consumers[0].retention, or not",
		"a sqlstore.Config of MyConfig.X":        "a sqlstore.Config of MyConfig.X",
	} {
		if got := reword(text, place); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
