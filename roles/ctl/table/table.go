// Package table prints tables for people: aligned columns, and colour where the
// reader has a terminal. It keeps nothing.
package table

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tak-os.org/tak-replicated/roles/boot"
)

// Style is how a cell looks where there is colour. Nothing is said by colour alone.
type Style string

// Styles.
const (
	Plain  Style = ""
	Strong Style = "1"
	Good   Style = "32"
	Warn   Style = "33"
	Bad    Style = "1;31"
	Dim    Style = "2"
)

// Coloured reports whether to print colour on f: it is a terminal, and nobody has
// set NO_COLOR.
func Coloured(f *os.File) bool { return os.Getenv("NO_COLOR") == "" && boot.Terminal(f) }

// Paint gives text a style, if there is colour.
func Paint(text string, s Style, colour bool) string {
	if !colour || s == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Cell is one field of a table.
type Cell struct {
	Text  string
	Style Style
}

// Table is rows under a header.
type Table struct {
	header []string
	rows   [][]Cell
}

// New returns a table with these columns.
func New(header ...string) *Table { return &Table{header: header} }

// Row adds a row. Cells are strings, numbers or Cells. What a terminal would not
// show as itself is replaced: a name from elsewhere must not move the cursor.
func (t *Table) Row(cells ...any) {
	row := make([]Cell, len(cells))
	for i, c := range cells {
		cell, ok := c.(Cell)
		if !ok {
			cell = Cell{Text: fmt.Sprint(c)}
		}
		cell.Text = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, cell.Text)
		row[i] = cell
	}
	if len(row) != len(t.header) {
		panic(fmt.Sprintf("table: a row of %d cells under %d headings", len(row), len(t.header)))
	}
	t.rows = append(t.rows, row)
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Print writes the table.
func (t *Table) Print(w io.Writer, colour bool) {
	head := make([]Cell, len(t.header))
	for i, h := range t.header {
		head[i] = Cell{h, Dim}
	}
	all := slices.Concat([][]Cell{head}, t.rows)
	width := make([]int, len(head))
	for _, row := range all {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.Text))
		}
	}
	for _, row := range all {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(Paint(c.Text, c.Style, colour))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.Text)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}
