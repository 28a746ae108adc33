import { createHash, createSign, generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto'

/** An authenticator in software: ES256 keys, attestation `none`, a counter. Everything it says can be falsified. */
export type Authenticator = {
  readonly credentialId: string
  /** Answers registration options as a browser page at `origin` would. */
  register(options: any, lies?: Lies): object
  /** Answers authentication options; every use counts one more. */
  sign(options: any, lies?: Lies): object
}

export type Lies = {
  origin?: string
  rpId?: string
  challenge?: string
  type?: string
  /** User present, user verified. */
  present?: boolean
  verified?: boolean
  counter?: number
  userHandle?: string | null
  credentialId?: string
}

export type AuthenticatorOptions = { readonly origin: string; readonly rpId: string; readonly counts?: boolean }

export function openAuthenticator({ origin, rpId, counts = true }: AuthenticatorOptions): Authenticator {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const id = randomBytes(32)
  const credentialId = id.toString('base64url')
  let counter = 0
  let userHandle: string | undefined

  const clientData = (type: string, challenge: string, lies: Lies) =>
    Buffer.from(
      JSON.stringify({
        type: lies.type ?? type,
        challenge: lies.challenge ?? challenge,
        origin: lies.origin ?? origin,
        crossOrigin: false,
      }),
    )
  const authData = (lies: Lies, attested: Buffer = Buffer.alloc(0)) => {
    const flags =
      (lies.present === false ? 0 : 0x01) | (lies.verified === false ? 0 : 0x04) | (attested.length > 0 ? 0x40 : 0)
    const count = Buffer.alloc(4)
    count.writeUInt32BE(lies.counter ?? counter)
    return Buffer.concat([sha256(lies.rpId ?? rpId), Buffer.from([flags]), count, attested])
  }
  const answer = (lies: Lies, response: object) => {
    const shown = lies.credentialId ?? credentialId
    return { id: shown, rawId: shown, type: 'public-key', clientExtensionResults: {}, response }
  }
  return {
    credentialId,
    register: (options, lies = {}) => {
      userHandle = options.user.id
      const attested = Buffer.concat([Buffer.alloc(16), Buffer.from([0, id.length]), id, cbor(coseKey(publicKey))])
      const attestation = new Map<string, unknown>([
        ['fmt', 'none'],
        ['attStmt', new Map()],
        ['authData', authData(lies, attested)],
      ])
      return answer(lies, {
        clientDataJSON: clientData('webauthn.create', options.challenge, lies).toString('base64url'),
        attestationObject: cbor(attestation).toString('base64url'),
        transports: ['internal'],
      })
    },
    sign: (options, lies = {}) => {
      if (counts) counter += 1
      const data = authData(lies)
      const client = clientData('webauthn.get', options.challenge, lies)
      const signature = createSign('sha256')
        .update(Buffer.concat([data, sha256(client)]))
        .sign(privateKey)
      const handle = lies.userHandle === undefined ? userHandle : lies.userHandle
      return answer(lies, {
        clientDataJSON: client.toString('base64url'),
        authenticatorData: data.toString('base64url'),
        signature: signature.toString('base64url'),
        ...(handle !== null && { userHandle: handle }),
      })
    },
  }
}

/** EC2, ES256, P-256, x, y (RFC 9053). */
function coseKey(publicKey: KeyObject): Map<number, unknown> {
  const { x, y } = publicKey.export({ format: 'jwk' })
  return new Map<number, unknown>([
    [1, 2],
    [3, -7],
    [-1, 1],
    [-2, Buffer.from(x!, 'base64url')],
    [-3, Buffer.from(y!, 'base64url')],
  ])
}

/** As much of CBOR as an attestation needs: integers, bytes, texts and maps. */
function cbor(value: unknown): Buffer {
  if (typeof value === 'number') return value < 0 ? head(1, -1 - value) : head(0, value)
  if (Buffer.isBuffer(value)) return Buffer.concat([head(2, value.length), value])
  if (typeof value === 'string') return Buffer.concat([head(3, Buffer.byteLength(value)), Buffer.from(value)])
  const entries = [...(value as Map<unknown, unknown>)]
  return Buffer.concat([head(5, entries.length), ...entries.flatMap(([key, one]) => [cbor(key), cbor(one)])])
}

function head(major: number, count: number): Buffer {
  if (count < 24) return Buffer.from([(major << 5) | count])
  return count < 256
    ? Buffer.from([(major << 5) | 24, count])
    : Buffer.from([(major << 5) | 25, count >> 8, count & 0xff])
}

function sha256(data: string | Buffer): Buffer {
  return createHash('sha256').update(data).digest()
}
