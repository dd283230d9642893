package boot

import "regexp"

// goType is how a type is written in messages.
const goType = `(?:struct \{.*\}|map\[\w+\](?:interface \{\}|[\w.]+)|[\w.*\[\]]+)`

// plainWords turn what Go's packages and the command line's library say into words
// that need no knowledge of either. The first that matches a place counts.
var plainWords = []struct {
	pattern *regexp.Regexp
	words   string
}{
	{regexp.MustCompile(`invalid value ("(?:[^"\\]|\\.)*") for flag --?([\w-]+): `), "--$2: "},
	{regexp.MustCompile(`invalid value ("(?:[^"\\]|\\.)*") for argument (\S+): `), "$2: "},
	{regexp.MustCompile(`could not parse ("(?:[^"\\]|\\.)*") as \S+ value from environment variable "(\w+)" for flag [\w-]+: `), "$2: "},
	{regexp.MustCompile(`flag provided but not defined: --?`), "there is no flag --"},
	{regexp.MustCompile(`flag needs an argument: `), "a value is missing after "},
	{regexp.MustCompile(`strconv\.Parse(?:Int|Uint): parsing (".*?"): invalid syntax`), "$1 is not a whole number"},
	{regexp.MustCompile(`strconv\.Parse\w+: parsing (".*?"): value out of range`), "$1 is too large, or too small"},
	{regexp.MustCompile(`(--[\w-]+|TAK_\w+): parse error`), "$1: the value can't be used"},
	{regexp.MustCompile(`strconv\.ParseBool: parsing (".*?"): invalid syntax`), "$1 is neither true nor false"},
	{regexp.MustCompile(`strconv\.ParseFloat: parsing (".*?"): invalid syntax`), "$1 is not a number"},
	{regexp.MustCompile(`strconv\.Atoi: parsing (".*?"): \w+ \w+(?: \w+)?`), "$1 is not a whole number"},
	{regexp.MustCompile(`time: (?:missing unit in|invalid) duration (".*?")`), "$1 is not a duration, as 30s, 5m or 1h are"},
	{regexp.MustCompile(`time: unknown unit (".*?") in duration (".*?")`), "$2 is not a duration, as 30s, 5m or 1h are"},
	{regexp.MustCompile(`json: cannot unmarshal (\w+(?: [^ ]+)?) into Go struct field \w*\.([\w.]+) of type ` + goType), "field $2 can't be what it is there ($1)"},
	{regexp.MustCompile(`json: cannot unmarshal (\w+(?: [^ ]+)?) into Go value of type ` + goType), "the whole can't be what it is there ($1)"},
	{regexp.MustCompile(`json: unknown field (".*?")`), "field $1 is not known"},
	{regexp.MustCompile(`invalid character (\S+|' ') (?:after|in|looking for|at) .*?(?:;|$)`), "not JSON: $1 is out of place"},
	{regexp.MustCompile(`unexpected end of JSON input`), "not JSON: it ends too early"},
}

// Plain returns a message in plain words: without what only somebody who knows Go
// can read.
func Plain(message string) string {
	for _, w := range plainWords {
		message = w.pattern.ReplaceAllString(message, w.words)
	}
	return message
}
