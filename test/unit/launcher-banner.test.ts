import { describe, expect, it } from 'vitest'
import { parseConfig } from '../../src/config/config.ts'
import { addressOf, banner } from '../../src/launcher/output.ts'

const facts = (env: Record<string, string> = {}) => ({
  url: 'http://127.0.0.1:8055',
  docs: 'README.md',
  config: parseConfig({ SECRET_KEY: 'k', ...env }),
  admin: undefined,
})

describe('the banner', () => {
  it('shows a password that was made up', () => {
    const text = banner({ ...facts(), admin: { email: 'a@example.com', password: 'made-up' } })
    expect(text).toContain('a@example.com')
    expect(text).toContain('made-up   (shown only this once)')
  })

  it('shows the console, and the link that signs the first administrator in there', () => {
    expect(banner(facts())).toContain('http://127.0.0.1:8055/console\n')
    const made = { email: 'a@example.com', password: 'made-up', signInToken: 'f00' }
    expect(banner({ ...facts(), admin: made })).toContain('http://127.0.0.1:8055/console/welcome#f00 ')
    expect(banner(facts({ CONSOLE_ENABLED: 'false' }))).not.toContain('8055/console')
  })

  it('points to ADMIN_PASSWORD instead of repeating it', () => {
    const own = facts({ ADMIN_PASSWORD: 'of my own choice' })
    const text = banner({ ...own, admin: { email: 'a@example.com', password: null } })
    expect(text).toContain('as in ADMIN_PASSWORD')
    expect(text).not.toContain('of my own choice')
  })

  it('says nothing of an administrator who was there before', () => {
    expect(banner(facts())).not.toMatch(/Admin|Password/)
  })

  it('shows where mails are while none are sent', () => {
    const sender = {
      MAIL_SENDERS_ENABLED: 'a',
      A_SMTP_HOST: 'h',
      A_SMTP_PORT: '25',
      A_SMTP_USER: 'u',
      A_SMTP_PASS: 'p',
    }
    expect(banner(facts())).toContain('http://127.0.0.1:8055/_dev/mail')
    expect(banner(facts({ ...sender, A_FROM_ADDRESS: 'a@example.com' }))).not.toContain('/_dev/mail')
    expect(banner(facts({ NODE_ENV: 'production', SECRET_KEY: 'k'.repeat(32) }))).not.toContain('/_dev/mail')
  })

  it('names the server of DATABASE_URL without its password', () => {
    const text = banner(facts({ DATABASE_URL: 'postgres://me:hidden@db.example.com:6000/shop' }))
    expect(text).toContain('db.example.com:6000/shop')
    expect(text).not.toContain('hidden')
  })
})

it.each([
  ['127.0.0.1', 'http://127.0.0.1:80'],
  ['0.0.0.0', 'http://127.0.0.1:80'],
  ['::', 'http://[::1]:80'],
  ['localhost', 'http://localhost:80'],
])('a server that listens on %s is reached under %s', (host, address) => {
  expect(addressOf(host, 80)).toBe(address)
})
