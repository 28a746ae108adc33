import { families } from '../config/families.ts'
import type { Env, Variable } from '../config/variable.ts'
import { groups } from '../config/variables.ts'
import type { Finding } from './finding.ts'

/**
 * The values of secret variables, and the passwords within addresses, the longest first. A password that is also the user,
 * the host or the database of its address is none: nobody can tell which of them a text quotes, and a mask would.
 */
export function secretsOf(env: Env): readonly string[] {
  const found = Object.entries(env).flatMap(([name, value = '']) => {
    const passwords = passwordsIn(value)
    return isSecret(name) ? [value, ...passwords] : passwords
  })
  return [...new Set(found)].filter((secret) => secret !== '').sort((a, b) => b.length - a.length)
}

/** The last net: what others said of a failure may quote what we sent. */
export function withoutSecrets(finding: Finding, secrets: readonly string[]): Finding {
  const clean = (text: string) => secrets.reduce(withoutSecret, text)
  return {
    ...finding,
    says: clean(finding.says),
    ...(finding.remedy !== undefined && { remedy: clean(finding.remedy) }),
  }
}

const mask = '********'

/** A short word is masked as a whole one only: within our own words the mask would spell it out. */
function withoutSecret(text: string, secret: string): string {
  if (!/^[\p{L}\p{N}]{1,7}$/u.test(secret)) return text.replaceAll(secret, mask)
  return text.replaceAll(new RegExp(`(?<![\\p{L}\\p{N}])${secret}(?![\\p{L}\\p{N}])`, 'gu'), mask)
}

/** As written, and decoded. */
function passwordsIn(text: string): readonly string[] {
  const addresses = text.matchAll(/:\/\/([^/@:]*):([^@/]+)@([^/?#:,\s]*)(?::\d+)?(?:\/([^?#,\s]*))?/g)
  return [...addresses].flatMap(([, user, password = '', host, database]) => {
    const names = [user, host, database].map((name = '') => decoded(name))
    return names.includes(decoded(password)) ? [] : [password, decoded(password)]
  })
}

/** Of families the endings, e.g. `_SMTP_PASS`. */
const secretNames = [...Object.values(groups), ...Object.values(families).flat()]
  .flatMap(({ variables }) => Object.values<Variable<unknown>>(variables))
  .filter(({ secret }) => secret)
  .map(({ name }) => name)

const isSecret = (name: string) =>
  secretNames.some((secret) => (secret.startsWith('_') ? name.endsWith(secret) : name === secret))

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
