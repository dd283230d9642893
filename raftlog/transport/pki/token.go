package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	tokenPrefix    = "tr1."
	tokenVersion   = 1
	tokenContext   = "tak-replicated token\n"
	tokenTextMost  = 1024
	tokenTimesSize = 16
)

// Errors of a token that is not accepted.
var (
	ErrTokenMalformed = errors.New("token is malformed")
	ErrTokenSignature = errors.New("token is not signed by the volume's authority")
	ErrTokenVolume    = errors.New("token is for another volume")
	ErrTokenExpired   = errors.New("token has expired")
	ErrTokenNotYet    = errors.New("token is not valid yet")
)

// Token is what a bearer token says. Its times are whole seconds.
type Token struct {
	Volume  string
	Issued  time.Time
	Expires time.Time
}

// RenewAt is when the token should be replaced: at half of its life.
func (t Token) RenewAt() time.Time { return halfLife(t.Issued, t.Expires) }

func halfLife(from, to time.Time) time.Time { return from.Add(to.Sub(from) / 2) }

// IssueToken signs a bearer token that is good for TokenLife from now.
func (ca *CA) IssueToken() (string, error) {
	now := ca.now()
	payload := encodeToken(Token{Volume: ca.volume, Issued: now, Expires: now.Add(TokenLife)})
	digest := tokenDigest(payload)
	// Without a source of randomness the signature is the deterministic one
	// of RFC 6979: equal tokens have equal bytes.
	sig, err := ca.key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	enc := base64.RawURLEncoding
	return tokenPrefix + enc.EncodeToString(payload) + "." + enc.EncodeToString(sig), nil
}

// verifyToken checks text against any of the authorities of volume.
func verifyToken(text, volume string, authorities []*x509.Certificate, now time.Time) (Token, error) {
	tok, payload, sig, err := parseToken(text)
	if err != nil {
		return Token{}, err
	}
	if !signedByAny(authorities, tokenDigest(payload), sig) {
		return Token{}, ErrTokenSignature
	}
	switch {
	case tok.Volume != volume:
		return Token{}, ErrTokenVolume
	case !now.Before(tok.Expires):
		return Token{}, fmt.Errorf("%w at %s", ErrTokenExpired, tok.Expires.UTC().Format(time.RFC3339))
	case now.Add(skewAllowed).Before(tok.Issued):
		return Token{}, ErrTokenNotYet
	}
	return tok, nil
}

func signedByAny(authorities []*x509.Certificate, digest [32]byte, sig []byte) bool {
	for _, a := range authorities {
		if pub, ok := a.PublicKey.(*ecdsa.PublicKey); ok && ecdsa.VerifyASN1(pub, digest[:], sig) {
			return true
		}
	}
	return false
}

func tokenDigest(payload []byte) [32]byte {
	return sha256.Sum256(append([]byte(tokenContext), payload...))
}

func encodeToken(t Token) []byte {
	b := make([]byte, 0, 2+len(t.Volume)+tokenTimesSize)
	b = append(b, tokenVersion, byte(len(t.Volume)))
	b = append(b, t.Volume...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Issued.Unix()))
	return binary.LittleEndian.AppendUint64(b, uint64(t.Expires.Unix()))
}

func parseToken(text string) (tok Token, payload, sig []byte, err error) {
	if len(text) > tokenTextMost {
		return tok, nil, nil, ErrTokenMalformed
	}
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return tok, nil, nil, ErrTokenMalformed
	}
	body, signature, ok := strings.Cut(rest, ".")
	if !ok {
		return tok, nil, nil, ErrTokenMalformed
	}
	enc := base64.RawURLEncoding.Strict()
	payload, err1 := enc.DecodeString(body)
	sig, err2 := enc.DecodeString(signature)
	if err1 != nil || err2 != nil {
		return tok, nil, nil, ErrTokenMalformed
	}
	tok, err = decodeToken(payload)
	return tok, payload, sig, err
}

func decodeToken(b []byte) (Token, error) {
	if len(b) < 2 || b[0] != tokenVersion {
		return Token{}, ErrTokenMalformed
	}
	n := int(b[1])
	b = b[2:]
	if len(b) != n+tokenTimesSize {
		return Token{}, ErrTokenMalformed
	}
	tok := Token{
		Volume:  string(b[:n]),
		Issued:  unixTime(b[n:]),
		Expires: unixTime(b[n+8:]),
	}
	if validName(tok.Volume) != nil || !tok.Issued.Before(tok.Expires) {
		return Token{}, ErrTokenMalformed
	}
	return tok, nil
}

func unixTime(b []byte) time.Time {
	return time.Unix(int64(binary.LittleEndian.Uint64(b)), 0)
}
