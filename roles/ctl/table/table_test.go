package table

import (
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	tb := New("NAME", "N", "NOTE")
	tb.Row("ä", 12, Cell{"fine", Good})
	tb.Row("long\x1b[2Jname", 3, "")
	var plain, colour strings.Builder
	tb.Print(&plain, false)
	want := "NAME          N   NOTE\nä             12  fine\nlong?[2Jname  3\n"
	if plain.String() != want {
		t.Errorf("printed\n%s", plain.String())
	}
	tb.Print(&colour, true)
	if got := colour.String(); !strings.Contains(got, "\x1b[32mfine\x1b[0m") || strings.Contains(got, "\x1b[2J") {
		t.Errorf("coloured %q", got)
	}
}
