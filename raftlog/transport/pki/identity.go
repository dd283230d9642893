package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Role is what a certificate entitles its holder to.
type Role string

// The closed set of roles.
const (
	RoleCA       Role = "ca"
	RoleServer   Role = "server"
	RolePeer     Role = "peer"
	RoleClient   Role = "client"
	RoleOperator Role = "operator"
)

// leafRoles are those that a certificate below the authority can have.
var leafRoles = []Role{RoleServer, RolePeer, RoleClient, RoleOperator}

const (
	uriScheme     = "tak-replicated"
	nameBytesMost = 253
)

// Identity is what a certificate says about its holder.
type Identity struct {
	// Volume is the volume's UID.
	Volume string
	// Role is what the holder may do.
	Role Role
	// Name tells holders of one role apart: a replica's or a node's name.
	Name string
}

// String returns the identity as the certificate's URI name.
func (id Identity) String() string {
	return fmt.Sprintf("%s://%s/%s/%s", uriScheme, id.Volume, id.Role, id.Name)
}

func (id Identity) uri() *url.URL {
	return &url.URL{Scheme: uriScheme, Host: id.Volume, Path: "/" + string(id.Role) + "/" + id.Name}
}

func (id Identity) validate() error {
	if err := validName(id.Volume); err != nil {
		return fmt.Errorf("volume %q: %w", id.Volume, err)
	}
	if err := validName(id.Name); err != nil {
		return fmt.Errorf("name %q: %w", id.Name, err)
	}
	if id.Role != RoleCA && !slices.Contains(leafRoles, id.Role) {
		return fmt.Errorf("unknown role %q", id.Role)
	}
	return nil
}

// validName accepts what needs no escaping in a URI and in a file name.
func validName(s string) error {
	if s == "" || len(s) > nameBytesMost {
		return fmt.Errorf("has %d characters, needs 1 to %d", len(s), nameBytesMost)
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		inner := (c == '-' || c == '.') && i > 0 && i < len(s)-1
		if !letter && !inner {
			return errors.New("may hold only a-z, 0-9 and, between them, dots and hyphens")
		}
	}
	return nil
}

// parseIdentity reads the form that Identity.String writes.
func parseIdentity(uri string) (Identity, error) {
	rest, ok := strings.CutPrefix(uri, uriScheme+"://")
	if !ok {
		return Identity{}, fmt.Errorf("name %q is not of scheme %s", uri, uriScheme)
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return Identity{}, fmt.Errorf("name %q is not VOLUME/ROLE/NAME", uri)
	}
	id := Identity{Volume: parts[0], Role: Role(parts[1]), Name: parts[2]}
	if err := id.validate(); err != nil {
		return Identity{}, fmt.Errorf("name %q: %w", uri, err)
	}
	return id, nil
}

// IdentityOf reads the identity from a certificate that has been verified.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	if len(cert.URIs) != 1 {
		return Identity{}, fmt.Errorf("certificate has %d URI names, needs one", len(cert.URIs))
	}
	return parseIdentity(cert.URIs[0].String())
}
