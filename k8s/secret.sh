#!/usr/bin/env bash
# Prints the Secrets of an installation whose servers are those of components/servers, with new random passwords:
#   k8s/secret.sh rabbitmq | kubectl apply -f -        (or: valkey, for the overlay redis-broker)
# Once: servers keep the passwords that they began with.
set -euo pipefail
word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
postgres=$(word) rabbitmq=$(word) valkey=$(word) s3=$(word)
case "${1:-}" in
    rabbitmq)
        broker=amqp://vqueue:$rabbitmq@rabbitmq:5672//
        keda="  RABBITMQ_URL: http://vqueue:$rabbitmq@rabbitmq.vqueue.svc:15672/"
        ;;
    valkey)
        broker=redis://:$valkey@valkey-broker:6379/0
        keda="  REDIS_ADDRESS: valkey-broker.vqueue.svc:6379
  REDIS_USERNAME: default
  REDIS_PASSWORD: $valkey
  REDIS_TLS: disable"
        ;;
    *)
        echo "usage: k8s/secret.sh rabbitmq|valkey" >&2
        exit 2
        ;;
esac
cat <<END
apiVersion: v1
kind: Secret
metadata: {name: vqueue, namespace: vqueue}
stringData:
  VQUEUE_DATABASE_URL: postgresql://vqueue:$postgres@postgres:5432/vqueue
  VQUEUE_BROKER_URL: $broker
  VQUEUE_REDIS_URL: redis://:$valkey@valkey:6379/1
  VQUEUE_S3_ENDPOINT_URL: http://s3:8333
  VQUEUE_S3_ACCESS_KEY_ID: vqueue
  VQUEUE_S3_SECRET_ACCESS_KEY: $s3
---
apiVersion: v1
kind: Secret
metadata: {name: vqueue-servers, namespace: vqueue}
stringData:
  POSTGRES_PASSWORD: $postgres
  RABBITMQ_PASSWORD: $rabbitmq
  VALKEY_PASSWORD: $valkey
  S3_PASSWORD: $s3
---
apiVersion: v1
kind: Secret
metadata: {name: vqueue-keda, namespace: vqueue}
stringData:
  POSTGRES_URL: postgresql://vqueue:$postgres@postgres.vqueue.svc:5432/vqueue?sslmode=disable
$keda
END
