import { createHmac, randomBytes } from 'node:crypto'
import { seal, unseal } from '../../../adapters/sealing.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reader } from '../../../db/sql.ts'
import { secretsOf } from './queries.ts'

/** By the Standard Webhooks scheme: of id, time and body, with the key that the secret stands for. */
export function signatureOf(secret: string, id: string, at: number, text: string): string {
  const key = Buffer.from(secret.slice(secretPrefix.length), 'base64')
  return `v1,${createHmac('sha256', key).update(`${id}.${at}.${text}`).digest('base64')}`
}

const secretPrefix = 'whsec_'

export const newWebhookSecret = (): string => secretPrefix + randomBytes(32).toString('base64')

/** The purpose that the secret of a webhook is sealed for. */
export const sealedForWebhook = (webhookId: string) => ({ purpose: 'webhook', owner: webhookId })

export const sealSecret = ({ config }: Configuration, webhookId: string, secret: string): string =>
  seal(config, sealedForWebhook(webhookId), secret)

/**
 * The present one first; the former one as long as it counts, and where it still opens: receivers have the present one by then.
 * Undefined where the present one does not open, as after a change of SECRET_KEY.
 */
export async function openSecrets({ db, config }: SecretReads, id: string): Promise<readonly string[] | undefined> {
  const stored = await secretsOf(db, id)
  if (stored === undefined) return undefined
  const { secret, formerSecret, isFormerValid } = stored
  const open = (sealed: string) => unseal(config, sealedForWebhook(id), sealed)?.text
  const [present, former] = [open(secret), isFormerValid && formerSecret !== null ? open(formerSecret) : undefined]
  if (present === undefined) return undefined
  return former === undefined ? [present] : [present, former]
}

export type SecretReads = Configuration & { readonly db: Reader }

export const secretLost =
  'its secret cannot be read with the present SECRET_KEY: rotate the secret, or set SECRET_KEY_PREVIOUS to the former key'

export function withoutSecrets(text: string, secrets: readonly string[]): string {
  return secrets
    .flatMap((secret) => [secret, secret.slice(secretPrefix.length)])
    .reduce((rest, secret) => rest.replaceAll(secret, '********'), text)
}
