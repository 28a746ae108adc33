import { hash } from 'node:crypto'

const names = new Map<string, string>()
const namesAtMost = 2000

/**
 * The name that a statement is prepared under: a hash of its text, which the types of its parameters are part of, as
 * casts. So a name stands for the same text whichever process has given it, and whoever meets it on a connection that
 * others use as well gets their own statement or an error, never another one. PostgreSQL cuts names at 63 bytes.
 */
export function statementName(text: string): string {
  let name = names.get(text)
  if (name === undefined) {
    if (names.size >= namesAtMost) names.delete(names.keys().next().value!)
    // 192 bits.
    name = `svc_${hash('sha256', text, 'base64url').slice(0, 32)}`
    names.set(text, name)
  }
  return name
}
