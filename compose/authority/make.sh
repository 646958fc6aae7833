#!/bin/sh
# Makes what this composition needs and nobody may commit: a private authority with the certificates of every service,
# and the secrets. `make.sh FOLDER` writes what is missing there and changes nothing that is there; certificates are made
# anew, all together, after `authority` was deleted.
#
# The authority may sign for this composition's names alone (RFC 5280, section 4.2.1.10), and its key is not kept: a
# browser that trusts it can be deceived about nothing else, and by nobody later.
set -eu
umask 077

DAYS=397
HOSTS="localhost keycloak redis vllm gateway"

[ $# -eq 1 ] || { echo "usage: make.sh FOLDER" >&2; exit 2; }
folder=$1
mkdir -p "$folder"
# Containers run as several users, and a secret is mounted with the mode of its file. So the files are readable and the
# folder is not: on this machine only its owner comes through it, in a container only what was mounted is there.
chmod 0700 "$folder"
cd "$folder"
work=$(mktemp -d .making.XXXXXX)
trap 'rm -rf "$work"' EXIT

main() {
    if [ ! -e authority ]; then certificates; fi
    for name in salt-1 metrics-token redis-password keycloak-admin-password demo-password batch-client-secret \
        web-client-secret grafana-password; do
        if [ ! -e "$name" ]; then random "$name"; fi
    done
    if [ ! -e redis-users ]; then redis_users; fi
}

certificates() {
    make_authority
    issue gateway "DNS:llm.localhost,DNS:localhost" serverAuth
    issue gateway-client "DNS:gateway" clientAuth
    issue keycloak "DNS:sso.localhost,DNS:keycloak" serverAuth
    # These two show their own certificate to themselves in a health check.
    issue engine "DNS:vllm,DNS:localhost" serverAuth,clientAuth
    issue redis "DNS:redis,DNS:localhost" serverAuth,clientAuth
    for pair in gateway gateway-client keycloak engine redis; do
        keep "$work/$pair.pem" "$pair-certificate"
        keep "$work/$pair.key" "$pair-key"
    done
    keep "$work/authority.pem" authority
}

make_authority() {
    cat >"$work/authority.cnf" <<END
[req]
distinguished_name = name
x509_extensions = authority
prompt = no
[name]
CN = saltgate compose authority
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
nameConstraints = critical, $(permitted), excluded;IP:0.0.0.0/0.0.0.0, excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0
END
    key authority
    openssl req -x509 -new -sha256 -days "$DAYS" -config "$work/authority.cnf" \
        -key "$work/authority.key" -out "$work/authority.pem"
}

permitted() {
    list=""
    for host in $HOSTS; do list="$list, permitted;DNS:$host"; done
    printf '%s' "${list#, }"
}

# issue NAME SUBJECT-ALTERNATIVE-NAMES EXTENDED-KEY-USAGE
issue() {
    cat >"$work/$1.ext" <<END
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = $3
subjectAltName = $2
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END
    key "$1"
    openssl req -new -sha256 -subj "/CN=saltgate $1" -key "$work/$1.key" -out "$work/$1.csr"
    openssl x509 -req -sha256 -days "$DAYS" -in "$work/$1.csr" -extfile "$work/$1.ext" \
        -CA "$work/authority.pem" -CAkey "$work/authority.key" -CAcreateserial -out "$work/$1.pem" 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
}

key() {
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/$1.key"
}

# 43 characters of base64url, 256 bits, as `saltgate keys new` writes them.
random() {
    bits=$(openssl rand -base64 32)
    printf '%s\n' "$bits" | tr '+/' '-_' | tr -d '=' >"$work/$1"
    keep "$work/$1" "$1"
}

# Nobody is anybody without the password; the health check may ask whether Redis lives and nothing else.
redis_users() {
    digest=$(tr -d '\n' <redis-password | openssl dgst -sha256 -r)
    cat >"$work/redis-users" <<END
user default off resetpass -@all
user health on nopass resetkeys resetchannels -@all +ping
user saltgate on #${digest%% *} resetkeys ~{saltgate}:* resetchannels &{saltgate}:* +@all -@admin -@dangerous
END
    keep "$work/redis-users" redis-users
}

# keep FILE NAME: a secret appears whole or not at all.
keep() {
    chmod 0444 "$1"
    mv -f "$1" "$2"
}

main
