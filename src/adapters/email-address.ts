/**
 * The one canonical form of an e-mail address, in which accounts are stored and looked up; undefined for
 * anything that is no address.
 *
 * Accepted is what mail systems agree on: `dot-atom@host.name`, ASCII, at most 254 characters, blanks around it
 * dropped, letters lower-cased. Refused are quoted local parts, comments, lists, display names, address literals,
 * control characters, and every character outside ASCII: look-alikes (`ı`, `ﬀ`, `＠`, the Kelvin sign) become an
 * ASCII address under some normalisation, so with them two texts could mean one account. International domains are
 * written in their `xn--` form.
 */
export function canonicalEmail(typed: string): string | undefined {
  const email = typed.length > longestTyped ? '' : typed.replace(/^ +/, '').replace(/ +$/, '')
  return isEmail(email) ? email.toLowerCase() : undefined
}

const longest = 254
const longestLocalPart = 64
/** Bounds the work on any input, before anything else looks at it. */
const longestTyped = 512

/** Asked before letters are lower-cased: the Kelvin sign in lower case is an ASCII k. */
function isEmail(email: string): boolean {
  if (email.length > longest) return false
  const at = email.indexOf('@')
  const local = email.slice(0, Math.max(at, 0))
  return local.length <= longestLocalPart && local.split('.').every(isAtom) && isDomain(email.slice(at + 1))
}

function isAtom(text: string): boolean {
  return /^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+$/.test(text)
}

/** The last label has a letter, so an IP address is no domain. */
function isDomain(domain: string): boolean {
  const labels = domain.split('.')
  return labels.every((label) => /^(?!-)[A-Za-z0-9-]{1,63}(?<!-)$/.test(label)) && /[A-Za-z]/.test(labels.at(-1)!)
}
