package bundle

import (
	"bytes"
	"regexp"
)

// What looks like a secret: blocks of PEM, also encoded once more; tokens of API
// servers and of volumes; and long words that could be a key.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\z)`),
	regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`),
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?i)(?:bearer|password|passwd|token|secret)["']?\s*[:= ]\s*["']?[A-Za-z0-9+/_.=-]{16,}`),
}

// longWord could be a key in base64, if it has letters of both cases and digits.
var longWord = regexp.MustCompile(`[A-Za-z0-9_=-]{60,}`)

func couldBeKey(word []byte) bool {
	return bytes.ContainsAny(word, "0123456789") && !bytes.Equal(word, bytes.ToLower(word)) && !bytes.Equal(word, bytes.ToUpper(word))
}

const removed = "[removed]"

// Redact takes out what looks like a secret.
func Redact(text []byte) []byte {
	for _, s := range secrets {
		text = s.ReplaceAll(text, []byte(removed))
	}
	return longWord.ReplaceAllFunc(text, func(word []byte) []byte {
		if couldBeKey(word) {
			return []byte(removed)
		}
		return word
	})
}
