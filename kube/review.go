package kube

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tak-os.org/tak-replicated/kube/api"
)

// Verdict is what the cluster says of a bearer token.
type Verdict struct {
	User    string // empty: the cluster does not know the token
	Allowed bool   // the user may get and list the driver's volumes
}

// Review asks the API server whose token it is, and whether that user may read
// the ReplicatedVolumes of the driver's namespace. An error means that nobody knows.
func (c *Client) Review(ctx context.Context, token string) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	who, err := c.core.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return Verdict{}, wrap(err, "review token")
	}
	if !who.Status.Authenticated || who.Status.User.Username == "" {
		return Verdict{}, nil
	}
	for _, verb := range []string{"get", "list"} {
		may, err := c.mayRead(ctx, who.Status.User, verb)
		if err != nil || !may {
			return Verdict{User: who.Status.User.Username}, err
		}
	}
	return Verdict{User: who.Status.User.Username, Allowed: true}, nil
}

func (c *Client) mayRead(ctx context.Context, u authenticationv1.UserInfo, verb string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range u.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	r, err := c.core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: c.ns, Verb: verb, Group: api.Group, Version: api.Version, Resource: api.Resource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, wrap(err, "review access")
	}
	return r.Status.Allowed, nil
}
