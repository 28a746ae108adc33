import type { AuthenticationResponseJSON, RegistrationResponseJSON } from '@simplewebauthn/server'
import type { PasskeyConfig } from '../config/config.ts'

/** A passkey as its authenticator introduced it; binary members in base64url. */
export type NewCredential = {
  readonly credentialId: string
  readonly publicKey: string
  readonly counter: number
  readonly deviceType: string
  readonly backedUp: boolean
  readonly transports: readonly string[]
  readonly aaguid: string
}

/** The stored part of a passkey that its verification needs. */
export type KnownCredential = Pick<NewCredential, 'credentialId' | 'publicKey' | 'counter'>

export type Assertion = { readonly counter: number; readonly backedUp: boolean; readonly userVerified: boolean }

/** Why a response was refused: for the log, never for the caller. */
type ResponseRefusal = { readonly refused: unknown }

type PasskeyUser = { readonly id: string; readonly email: string; readonly name: string }

/** How long a browser waits for the user, which is as long as the challenge lives. Milliseconds. */
const timeout = 300_000

/** EdDSA, ES256, RS256 (IANA COSE numbers); the library would add what this Node.js calls experimental. */
const algorithms = [-8, -7, -257]

/** `PublicKeyCredentialCreationOptionsJSON`; passkeys that the user has already are not made again. */
export async function registrationOptions(
  { rpId, rpName }: PasskeyConfig,
  person: PasskeyUser,
  known: readonly string[],
) {
  const { generateRegistrationOptions } = await library()
  return generateRegistrationOptions({
    rpID: rpId,
    rpName,
    userID: Uint8Array.from(Buffer.from(person.id)),
    userName: person.email,
    userDisplayName: person.name,
    attestationType: 'none',
    authenticatorSelection: { residentKey: 'preferred', userVerification: 'preferred' },
    supportedAlgorithmIDs: algorithms,
    excludeCredentials: known.map((id) => ({ id })),
    timeout,
  })
}

/** `PublicKeyCredentialRequestOptionsJSON` that name no account: the authenticator shows whose passkeys it has. */
export async function authenticationOptions({ rpId }: PasskeyConfig) {
  const { generateAuthenticationOptions } = await library()
  return generateAuthenticationOptions({ rpID: rpId, userVerification: 'preferred', timeout })
}

/** The handle by which an authenticator names the user that its passkey is for. */
export function userHandleOf(userId: string): string {
  return Buffer.from(userId).toString('base64url')
}

/** The credential in a registration response that answers the challenge at one of our origins. */
export async function verifyRegistration(
  { rpId, origins }: PasskeyConfig,
  response: object,
  challenge: string,
): Promise<NewCredential | ResponseRefusal> {
  const { verifyRegistrationResponse } = await library()
  return refusing(async () => {
    const { verified, registrationInfo } = await verifyRegistrationResponse({
      response: response as RegistrationResponseJSON,
      expectedChallenge: challenge,
      expectedOrigin: [...origins],
      expectedRPID: rpId,
      requireUserVerification: false,
      supportedAlgorithmIDs: algorithms,
    })
    if (!verified) return { refused: 'the attestation does not fit' }
    const { credential, credentialDeviceType, credentialBackedUp, aaguid } = registrationInfo
    return {
      credentialId: credential.id,
      publicKey: Buffer.from(credential.publicKey).toString('base64url'),
      counter: credential.counter,
      deviceType: credentialDeviceType,
      backedUp: credentialBackedUp,
      transports: credential.transports ?? [],
      aaguid,
    }
  })
}

/** The content of a signature over the challenge by a known passkey. A counter that did not grow is a copy: refused. */
export async function verifyAssertion(
  { rpId, origins }: PasskeyConfig,
  response: object,
  challenge: string,
  { credentialId, publicKey, counter }: KnownCredential,
): Promise<Assertion | ResponseRefusal> {
  const { verifyAuthenticationResponse } = await library()
  return refusing(async () => {
    const { verified, authenticationInfo } = await verifyAuthenticationResponse({
      response: response as AuthenticationResponseJSON,
      expectedChallenge: challenge,
      expectedOrigin: [...origins],
      expectedRPID: rpId,
      requireUserVerification: false,
      credential: { id: credentialId, publicKey: Uint8Array.from(Buffer.from(publicKey, 'base64url')), counter },
    })
    if (!verified) return { refused: 'the signature does not fit' }
    const { newCounter, credentialBackedUp, userVerified } = authenticationInfo
    return { counter: newCounter, backedUp: credentialBackedUp, userVerified }
  })
}

/** Two hundred modules, which a process without passkeys never needs. */
const library = () => import('@simplewebauthn/server')

/** The library says no by throwing, whatever is wrong with a response. */
async function refusing<T>(verify: () => Promise<T | ResponseRefusal>): Promise<T | ResponseRefusal> {
  try {
    return await verify()
  } catch (error) {
    return { refused: error }
  }
}
