// Package image makes container images without a container tool: archives in the
// OCI layout, from files, as containerd imports them. The product's image is made by
// the same recipe as the Containerfile, whose own test is here too.
package image
