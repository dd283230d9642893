package boot

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"
)

// goWords are words of a programmer.
var goWords = regexp.MustCompile(`strconv|unmarshal|Go value|Go struct|json:|time:|invalid syntax|looking for|flag provided`)

// TestPlainCommandLine gives flags of every kind what they can't be.
func TestPlainCommandLine(t *testing.T) {
	try := func(args ...string) string {
		t.Helper()
		var errOut strings.Builder
		c := &cli.Command{Name: "role", Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Sources: Env("n")}, &cli.UintFlag{Name: "u"}, &cli.DurationFlag{Name: "d"}, &cli.BoolFlag{Name: "b"}, &cli.FloatFlag{Name: "f"},
		}}
		if code := Main(t.Context(), []*cli.Command{c}, append([]string{Name, "role"}, args...), io.Discard, &errOut); code != ExitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
		return strings.TrimSpace(strings.TrimPrefix(errOut.String(), Name+": "))
	}
	for args, want := range map[string]string{
		"--n x":                    `--n: "x" is not a whole number`,
		"--n 99999999999999999999": `--n: "99999999999999999999" is too large, or too small`,
		"--u -1":                   `--u: "-1" is not a whole number`,
		"--u 1.5":                  `--u: "1.5" is not a whole number`,
		"--d 5":                    `--d: "5" is not a duration, as 30s, 5m or 1h are`,
		"--d x":                    `--d: "x" is not a duration, as 30s, 5m or 1h are`,
		"--d 5y":                   `--d: "5y" is not a duration, as 30s, 5m or 1h are`,
		"--b=maybe":                `--b: the value can't be used`,
		"--f x":                    `--f: "x" is not a number`,
		"--nonsense":               `there is no flag --nonsense`,
		"--n":                      `a value is missing after --n`,
		"--n 1 --d 1s --u 1 extra": `role: unexpected argument "extra"`,
	} {
		if got := try(strings.Fields(args)...); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	t.Setenv("TAK_N", "many")
	if got := try(); got != `TAK_N: "many" is not a whole number` {
		t.Errorf("from the environment: %q", got)
	}
}

// TestPlain takes errors as Go makes them.
func TestPlain(t *testing.T) {
	type inner struct{ N uint8 }
	type outer struct {
		Replicas int           `json:"replicas"`
		At       time.Duration `json:"at"`
		Inner    inner         `json:"inner"`
	}
	var into outer
	for _, text := range []string{
		``, `{`, `[]`, `"x"`, `7`, `{"replicas": "three"}`, `{"replicas": {}}`, `{"replicas": 1.5}`, `{"inner": {"N": 300}}`, `{"inner": 7}`, `{"at": true}`,
		`{]`, `{"a" 1}`, `{"a": nul}`, `{"a": "\x"}`, `{} {}`, "{\"a\": \"\n\"}",
	} {
		err := json.Unmarshal([]byte(text), &into)
		if err == nil {
			t.Fatalf("%s is right", text)
		}
		got := Plain(fmt.Sprintf("settings.json is no settings (%v): put it back", err))
		if goWords.MatchString(got) || !strings.HasPrefix(got, "settings.json is no settings (") {
			t.Errorf("%s: %s", text, got)
		}
	}
	d := json.NewDecoder(strings.NewReader(`{"other": 1}`))
	d.DisallowUnknownFields()
	if got := Plain(d.Decode(&into).Error()); got != `field "other" is not known` {
		t.Error(got)
	}
	_, err := strconv.Atoi("x")
	if got := Plain(err.Error()); got != `"x" is not a whole number` {
		t.Error(got)
	}
	if got := Plain("open /x: no such file or directory"); got != "open /x: no such file or directory" {
		t.Error(got)
	}
}
