package kubetest

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tak-os.org/tak-replicated/kube/api"
)

// NotFound is a server's answer that there is no such object.
func NotFound(name string) error { return apierrors.NewNotFound(schema.GroupResource{}, name) }

// Invalid is a server's answer that it takes no volume like that.
func Invalid(name string) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: api.Group, Kind: api.Kind}, name, nil)
}
