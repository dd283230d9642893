// Package names says which names the node drivers take.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// SubdomainMost is the longest DNS-1123 subdomain, in bytes.
const SubdomainMost = 253

// Subdomain reports whether s is a DNS-1123 subdomain as Kubernetes means it:
// labels of a-z, 0-9 and "-", joined by dots, each beginning and ending with a
// letter or digit. Such a name is one safe component of a path.
func Subdomain(s string) bool {
	if len(s) > SubdomainMost {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !subdomainLabel(label) {
			return false
		}
	}
	return true
}

func subdomainLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// LabelMost is the longest value of a Kubernetes label, in bytes.
const LabelMost = 63

// hashDigits of a name's SHA-256 stand for what Label cuts off.
const hashDigits = 16

// Label returns a subdomain as a value for a label: itself, or its beginning and a
// hash of all of it if it is too long.
func Label(name string) string {
	if len(name) <= LabelMost {
		return name
	}
	return strings.TrimRight(name[:LabelMost-hashDigits-1], "-.") + "-" + Hash(name)[:hashDigits]
}

// Hash returns the SHA-256 of a name in hexadecimal digits.
func Hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}
