import { isObject } from '../../query/guards.ts'
import type { Runtime } from '../../runtime.ts'
import { commonVariables, withSynonyms } from './variables.ts'

const person = { firstName: 'Ada', lastName: 'Lovelace', email: 'ada@example.com', phone: '+44 20 7946 0000' }
const tenant = {
  name: 'Analytical Engines',
  logo: '',
  website: 'https://engines.example.com',
  address: '12 St James’s Square, London',
  phone: '+44 20 7946 0001',
  email: 'office@engines.example.com',
}
const token = 'sample'
const lifetimeMs = 3_600_000

/**
 * Every variable that a template may use, as in a mail to somebody, with the settings as they are. `data` takes the
 * place of what it names, within `user` and `tenant` too.
 */
export function sampleVariables(
  rt: Runtime,
  type = '',
  tenantId?: string,
  data: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> {
  const settings = rt.settings.current(tenantId)
  const now = rt.clock()
  const base = String(settings.app_url ?? 'https://app.example.com').replace(/\/+$/, '')
  const variables = {
    ...commonVariables(settings, person.email, person, tenant, now),
    magicLink: type === 'magicLinkCode' ? '' : `${base}/auth/magiclink/${token}`,
    magicCode: type === 'magicLinkCode' ? 'H7K2M4QX' : '',
    resetPasswordLink: `${base}/auth/reset-password/${token}`,
    resetUrl: `${base}/auth/reset-password/${token}`,
    resetPasswordCode: '',
    verificationLink: `${base}/auth/verify-email/${token}`,
    verifyUrl: `${base}/auth/verify-email/${token}`,
    oldEmail: 'ada@old.example.com',
    newEmail: 'ada@new.example.com',
    inviteLink: `${base}/accept-invite?token=${token}`,
    inviterName: 'Charles Babbage',
    existing: type === 'inviteExistingUser' ? 'true' : '',
    notification_title: 'Your report is ready',
    notification_message: 'It has 12 pages.',
    action_url: base,
    action_text: 'Read it',
  }
  const filled = withSynonyms({ ...variables, ...data }, settings, new Date(now.getTime() + lifetimeMs))
  return { ...filled, user: merged(variables.user, data.user), tenant: merged(variables.tenant, data.tenant) }
}

function merged(sample: object, given: unknown): unknown {
  return isObject(given) ? { ...sample, ...given } : (given ?? sample)
}
