package worker

import (
	"encoding/json"
	"testing"
)

func TestReplacement(t *testing.T) {
	good := Replacement{Remove: Seat{2, "b", 1}, Add: Seat{4, "b", 2}}
	for name, c := range map[string]struct {
		spoil func(*Replacement)
		ok    bool
	}{
		"as it should be":   {func(*Replacement) {}, true},
		"only adds":         {func(r *Replacement) { r.Remove = Seat{} }, true},
		"only withdraws":    {func(r *Replacement) { r.Add = Seat{} }, true},
		"nothing at all":    {func(r *Replacement) { *r = Replacement{} }, false},
		"itself":            {func(r *Replacement) { r.Add.Member = 2 }, false},
		"another replica":   {func(r *Replacement) { r.Add.Replica = "c" }, false},
		"the same life":     {func(r *Replacement) { r.Add.Incarnation = 1 }, false},
		"no incarnation":    {func(r *Replacement) { r.Add.Incarnation = 0 }, false},
		"an earlier one":    {func(r *Replacement) { r.Remove.Incarnation = 3 }, false},
		"a nameless member": {func(r *Replacement) { r.Add.Replica = "" }, false},
	} {
		r := good
		c.spoil(&r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseReplacement(text); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseReplacement(f *testing.F) {
	f.Add([]byte(`{"remove":{"member":2,"replica":"b","incarnation":1},"add":{"member":4,"replica":"b","incarnation":2}}`))
	f.Add([]byte(`{"done":true,"phase":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := parseReplacement(text); err == nil && (r.Add.Member == 0 && !r.withdraws() || r.Add.Member == r.Remove.Member) {
			t.Errorf("took %q", text)
		}
		if r, err := parseReplaced(text); err == nil && r == nil {
			t.Error("no answer and no error")
		}
	})
}
