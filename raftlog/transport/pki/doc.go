// Package pki holds the trust of one volume: its certificate authority, the
// certificates that the authority signs, and the bearer token.
//
// # What it owns
//
// Every volume has a certificate authority of its own (ECDSA P-256). There is
// no shared one, so that the credentials of one volume open nothing of
// another. A certificate carries who it is for as its only URI name:
//
//	tak-replicated://VOLUME/ROLE/NAME
//
// ROLE is one of
//
//	server    a replica's listener; also has the replica's service DNS name
//	peer      a replica that dials another replica
//	client    a mount owner
//	operator  the manager, or an operator's command
//	ca        the authority itself
//
// A connection may do only what the role of its certificate says. A server
// certificate can't be used to dial, and the others can't be used to listen.
//
// The bearer token says that its holder was entitled to the volume within the
// last 24 hours. It is signed by the authority, so whoever has the authority's
// certificate can check it. Its text is
//
//	"tr1." base64url(PAYLOAD) "." base64url(SIGNATURE)
//
//	PAYLOAD    version u8 (1), length of volume u8, volume,
//	           issued i64, expires i64: seconds since 1970, little endian
//	SIGNATURE  ECDSA (ASN.1) over SHA-256("tak-replicated token\n" PAYLOAD)
//
// # What it does not own
//
// Where credentials come from in a cluster (Secrets), when a connection is
// made, and what a session does when its token runs out.
//
// # Lifetimes
//
// Authority 10 years, certificates 90 days, token 24 hours; leaves and token
// are renewed at half-life. [Credentials] takes over renewed material in the
// background, and refuses its own when that has expired. The authority's file
// may hold several certificates, all of which are then trusted.
//
// # Invariants
//
// TLS 1.3 only; both sides are verified, against the volume's authority and
// nothing else; the dialler checks the server's DNS name; there is no session
// resumption, so that each connection is verified anew.
//
// # After a crash
//
// Files are replaced by rename, so each one is old or new. A certificate and
// its key are two files: a reader that finds them from different renewals
// keeps what it has and reads again later, and Dir.Renew issues both anew.
package pki
