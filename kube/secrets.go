package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Secret is a Secret. Its content stays out of logs and errors.
type Secret struct {
	Namespace, Name string
	UID             string
	ResourceVersion string
	Data            map[string][]byte
	Labels          map[string]string
}

// Secret returns a Secret by name.
func (c *Client) Secret(ctx context.Context, namespace, name string) (Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	s, err := c.core.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Secret{}, wrap(err, "get secret %s/%s", namespace, name)
	}
	return secretOf(s), nil
}

// SecretsOf lists the Secrets of a volume in a namespace.
func (c *Client) SecretsOf(ctx context.Context, namespace, volume string) ([]Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.CoreV1().Secrets(namespace).List(ctx, ofVolume(volume))
	if err != nil {
		return nil, wrap(err, "list secrets of volume %s in %s", volume, namespace)
	}
	var all []Secret
	for i := range list.Items {
		all = append(all, secretOf(&list.Items[i]))
	}
	return all, nil
}

func secretOf(s *corev1.Secret) Secret {
	return Secret{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID), ResourceVersion: s.ResourceVersion, Data: s.Data, Labels: s.Labels}
}

// CreateSecret makes a Secret.
func (c *Client) CreateSecret(ctx context.Context, s Secret) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.core.CoreV1().Secrets(s.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: s.Labels}, Data: s.Data,
	}, metav1.CreateOptions{})
	return wrap(err, "create secret %s/%s", s.Namespace, s.Name)
}

// UpdateSecret writes the content of a Secret that was looked at. It is a
// Conflict if it has changed since.
func (c *Client) UpdateSecret(ctx context.Context, s Secret) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.core.CoreV1().Secrets(s.Namespace).Update(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: s.Labels, ResourceVersion: s.ResourceVersion}, Data: s.Data,
	}, metav1.UpdateOptions{})
	return wrap(err, "update secret %s/%s", s.Namespace, s.Name)
}

// DeleteSecret deletes a Secret that was looked at. It is no error if it is gone.
func (c *Client) DeleteSecret(ctx context.Context, s Secret) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.core.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, *deleteExactly(s.UID, ""))
	return wrap(ignore(err, NotFound), "delete secret %s/%s", s.Namespace, s.Name)
}
