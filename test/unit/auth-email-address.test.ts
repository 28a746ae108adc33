import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { canonicalEmail } from '../../src/adapters/email-address.ts'

describe('canonicalEmail', () => {
  it.each([
    ['user@example.com', 'user@example.com'],
    ['VICTIM@X.COM', 'victim@x.com'],
    ['  user@example.com ', 'user@example.com'],
    ['first.last+tag@sub.example.co.uk', 'first.last+tag@sub.example.co.uk'],
    ["o'hara_{x}~!#$%&*/=?^`|@example.com", "o'hara_{x}~!#$%&*/=?^`|@example.com"],
    ['user@localhost', 'user@localhost'],
    ['user@xn--bcher-kva.example', 'user@xn--bcher-kva.example'],
    [`${'a'.repeat(64)}@example.com`, `${'a'.repeat(64)}@example.com`],
  ])('%j is %j', (typed, canonical) => {
    expect(canonicalEmail(typed)).toBe(canonical)
  })

  it.each([
    ['nothing', ''],
    ['no at', 'user.example.com'],
    ['no local part', '@example.com'],
    ['no domain', 'user@'],
    ['two ats', 'a@b@example.com'],
    ['a dotless i', 'vıctim@x.com'],
    ['a full-width at', 'victim＠x.com'],
    ['a ligature', 'ﬀ@x.com'],
    ['a Kelvin sign, whose lower case is an ASCII k', '\u212Aate@x.com'],
    ['a dotted capital I', 'V\u0130CTIM@x.com'],
    ['é in one code point', 'é@x.com'],
    ['é in two', 'e\u0301@x.com'],
    ['a cyrillic domain', 'victim@х.com'],
    ['a zero-width space', 'vic\u200Btim@x.com'],
    ['a no-break space at the end', 'victim@x.com\u00A0'],
    ['a dot at the end', 'victim@x.com.'],
    ['two dots', 'a..b@x.com'],
    ['a dot at the start', '.a@x.com'],
    ['a dot before the at', 'a.@x.com'],
    ['a quoted local part', '"a@evil.test x"@corp.test'],
    ['a quoted plain local part', '"a"@corp.test'],
    ['a list', 'a@evil.test,b@corp.test'],
    ['a list by semicolons', 'a@evil.test;b@corp.test'],
    ['a group', 'team: a@x.com, b@x.com;'],
    ['a display name', 'Me <a@x.com>'],
    ['a comment', 'a(comment)@x.com'],
    ['a line end and a header', 'a@x.com\r\nBcc: e@evil.test'],
    ['a line end at the end', 'a@x.com\n'],
    ['a tab', 'a\t@x.com'],
    ['a null byte', 'a\0@x.com'],
    ['an address literal', 'a@[127.0.0.1]'],
    ['an IP address', 'a@127.0.0.1'],
    ['a label that begins with a hyphen', 'a@-x.com'],
    ['a label that ends with a hyphen', 'a@x-.com'],
    ['an underscore in the domain', 'a@x_y.com'],
    ['a percent sign in the domain', 'a@x%00.com'],
    ['a local part of 65 characters', `${'a'.repeat(65)}@example.com`],
    ['a local part of 300 characters', `${'a'.repeat(300)}@example.com`],
    ['a label of 64 characters', `a@${'b'.repeat(64)}.com`],
    ['255 characters', `a@${'b.'.repeat(125)}com`],
  ])('refuses %s', (_what, typed) => {
    expect(canonicalEmail(typed)).toBeUndefined()
  })

  it('has one form only: whatever is accepted is its own canonical form, in ASCII', () => {
    const piece = fc.constantFrom(
      'a',
      'K',
      '\u212A',
      'ı',
      '.',
      '@',
      ' ',
      '-',
      '"',
      '(',
      ',',
      'x.com',
      '＠',
      '\r\n',
      'ﬀ',
    )
    const texts = fc.oneof(
      fc.string({ unit: 'grapheme' }),
      fc.array(piece).map((parts) => parts.join('')),
      fc.emailAddress(),
    )
    fc.assert(
      fc.property(texts, (typed) => {
        const email = canonicalEmail(typed)
        if (email === undefined) return
        expect(email).toMatch(/^[\x21-\x7e]+$/)
        expect(email).toBe(email.toLowerCase())
        expect(canonicalEmail(email)).toBe(email)
        expect(canonicalEmail(email.toUpperCase())).toBe(email)
        expect(email.split('@')).toHaveLength(2)
      }),
    )
  })

  // A regular expression that backtracks would not end on one of these within any test's limit.
  it.each([
    ['nested groups', 'a:'.repeat(50_000)],
    ['nested comments', `${'('.repeat(50_000)}a@x.com`],
    ['quotes', '"\\'.repeat(50_000)],
    ['dots', `${'a.'.repeat(50_000)}@`],
    ['hyphens', `a@${'-'.repeat(100_000)}`],
    ['blanks', `${' '.repeat(100_000)}x`],
  ])('ends at once on 100 KB of %s', (_what, typed) => {
    expect(canonicalEmail(typed)).toBeUndefined()
  })
})
