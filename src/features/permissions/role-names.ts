import { administratorRole, publicRole } from './permissions.ts'

/**
 * Whether a role of this name would be taken for one of the built-in roles by somebody who reads it (quality P-20):
 * case, width, accents, invisible characters and letters of other scripts that look the same make no other name.
 */
export function readsLikeBuiltIn(name: string): boolean {
  return builtIn.has(asRead(name))
}

/** Of the letters in the built-in names, after decomposition and in lower case. `i` and `l` are not told apart. */
const lookAlikes = new Map(
  Object.entries({
    a: 'аɑα',
    b: 'ьƅβ',
    c: 'сϲ',
    d: 'ԁɗ',
    e: 'еєε',
    l: 'iіıιɩ1|ӏ',
    m: 'мɱ',
    n: 'ոпη',
    o: 'оοօσ0',
    p: 'рρ',
    r: 'гɾ',
    s: 'ѕꜱƽ5',
    t: 'тτ7',
    u: 'υսᴜц',
  }).flatMap(([letter, others]) => [...others].map((other) => [other, letter] as const)),
)

const builtIn = new Set([administratorRole, publicRole, 'user'].map(asRead))

function asRead(name: string): string {
  const plain = name
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[\p{M}\p{Cf}\s\p{P}]/gu, '')
  return [...plain].map((letter) => lookAlikes.get(letter) ?? letter).join('')
}
