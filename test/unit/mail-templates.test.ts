import { describe, expect, it } from 'vitest'
import { textOfHtml } from '../../src/adapters/html-text.ts'
import { renderLiquid, TemplateError } from '../../src/adapters/liquid.ts'
import { builtInTemplates } from '../../src/features/messaging/templates/built-in.ts'
import { oneLine, renderSubject, renderTemplate } from '../../src/features/messaging/templates/renderer.ts'
import { commonVariables, type Recipient } from '../../src/features/messaging/templates/templates.ts'

const ada: Recipient = { firstName: 'Ada', lastName: 'Lovelace', email: 'ada@mail.example', phone: null }
const noon = new Date('2026-03-04T23:05:00Z')

describe('renderLiquid', () => {
  it('replaces variables, and unknown ones by nothing', () => {
    expect(renderLiquid('{{ user.name }}|{{ nobody.name }}', { user: { name: 'Ada' } }, 'html')).toBe('Ada|')
  })

  it('escapes values in HTML and not in text', () => {
    const variables = { name: `<b a="c">'&` }
    expect(renderLiquid('{{ name }}', variables, 'html')).toBe('&lt;b a=&#34;c&#34;&gt;&#39;&amp;')
    expect(renderLiquid('{{ name }}', variables, 'text')).toBe(variables.name)
  })

  it.each(['{{ 7 | times: 7 }}', '{% raw %}', '{% include "x" %}'])('takes %s in a value as text', (value) => {
    expect(renderLiquid('{{ value }}', { value }, 'text')).toBe(value)
  })

  it.each([
    '{{ "".constructor }}',
    '{{ user.__proto__ }}',
    '{{ user["__proto__"] }}',
    '{{ user.constructor.name }}',
    '{{ user.toString }}',
    '{% assign p = user.__proto__ %}{{ p.constructor }}',
    '{% for key in user.__proto__ %}{{ key }}{% endfor %}',
  ])('finds nothing in %s', (source) => {
    expect(renderLiquid(source, { user: { name: 'Ada' } }, 'html')).toBe('')
  })

  it.each([
    `{% include '/etc/passwd' %}`,
    `{% render '../../.env' %}`,
    `{% layout '/etc/passwd' %}`,
    `{% block x %}{% endblock %}`,
    '{{ x | constructor }}',
    '{% for i in (1..1000000000) %}{% endfor %}',
    `{{ 'now' | date: '%9999999d' }}`,
    '{% if %}',
    '{{ unfinished',
    ' '.repeat(500_001),
  ])('refuses %.60s', (source) => {
    expect(() => renderLiquid(source, {}, 'html')).toThrow(TemplateError)
  })

  it('ends a template that takes too long', () => {
    const loops = '{% for i in (1..2000) %}{% for j in (1..2000) %}{{ i }}{% endfor %}{% endfor %}'
    expect(() => renderLiquid(loops, {}, 'html')).toThrow(/limit exceeded/)
  })
})

describe('renderTemplate', () => {
  const verification = {
    ...variables({ project_name: 'House & Co' }),
    verificationLink: 'https://app.example/auth/verify-email/abc',
  }

  it('makes subject, HTML and text', () => {
    const mail = renderTemplate(builtInTemplates.verification, verification)
    expect(mail.subject).toBe('Confirm your e-mail address for House & Co')
    expect(mail.html).toContain('<a class="button" href="https://app.example/auth/verify-email/abc"')
    expect(mail.html).toContain('House &amp; Co')
    expect(mail.text).toBe(`Confirm your e-mail address

Hello Ada,

Please confirm that this e-mail address is yours. The link works for 24 hours.

Confirm e-mail address (https://app.example/auth/verify-email/abc)

If the button does not work, copy this address into your browser:
https://app.example/auth/verify-email/abc

If you did not create an account at House & Co, ignore this mail.

House & Co · 2026
`)
  })

  it('adapts to small screens and to the dark', () => {
    const { html } = renderTemplate(builtInTemplates.verification, verification)
    expect(html).toContain('name="viewport"')
    expect(html).toContain('@media (max-width: 480px)')
    expect(html).toContain('@media (prefers-color-scheme: dark)')
    expect(html).toContain('name="color-scheme" content="light dark"')
  })

  it('prints the tenant as its name, and still has its members alone', () => {
    const body = '{{ tenant }}|{{ tenant.name | upcase }}|{{ tenant | upcase }}|{{ tenant.toString }}'
    const tenant = { name: 'A & B', logo: '' }
    expect(renderTemplate({ subject: 'Join {{ tenant }}', body }, { tenant })).toMatchObject({
      ...{ subject: 'Join A & B', html: 'A &amp; B|A &amp; B|A &amp; B|' },
    })
    expect(renderTemplate({ subject: '{{ tenant }}', body: '' }, { tenant: 'text' }).subject).toBe('text')
    expect(renderTemplate({ subject: '{{ tenant }}', body: '' }, { tenant: {} }).subject).toBe('')
  })

  it('takes another subject, on one line', () => {
    const subject = renderSubject('For {{ user.firstName }}\r\nBcc: {{ user.email }}', verification)
    expect(subject).toBe('For Ada Bcc: ada@mail.example')
  })
})

describe('oneLine', () => {
  it.each([
    ['a\r\nb\u2028c\u2029d\u0000e', 'a b c d e'],
    ['\u202eevil', 'evil'],
    ['\u{1f468}\u200d\u{1f469}', '\u{1f468}\u200d\u{1f469}'],
    ['x'.repeat(300), 'x'.repeat(250)],
  ])('%j', (text, line) => expect(oneLine(text)).toBe(line))
})

describe('commonVariables', () => {
  it('has the variables of both vocabularies', () => {
    const settings = { project_url: 'https://api.example/', app_url: 'https://app.example', email_icon_Id: 'icon-id' }
    expect(variables(settings, { name: 'Acme', secret: 'canary' })).toEqual({
      project_name: 'Daybook',
      project_color: '#663399',
      project_url: 'https://api.example/',
      app_url: 'https://app.example',
      email_signature: '',
      logo_url: 'cid:logo',
      loginLink: 'https://app.example/login',
      name: 'Ada',
      user: { firstName: 'Ada', lastName: 'Lovelace', fullName: 'Ada Lovelace', email: 'ada@mail.example', phone: '' },
      tenant: { name: 'Acme', logo: '', website: '', address: '', phone: '', email: '' },
      currentDate: '2026-03-04',
      currentTime: '23:05',
      currentYear: '2026',
    })
  })

  it.each([
    ['Europe/Berlin', 'DD.MM.YYYY', { currentDate: '05.03.2026', currentTime: '00:05', currentYear: '2026' }],
    ['America/New_York', 'MM/DD/YY', { currentDate: '03/04/26', currentTime: '18:05', currentYear: '2026' }],
    ['Nowhere/Land', 'YYYY-MM-DD', { currentDate: '2026-03-04', currentTime: '23:05', currentYear: '2026' }],
  ])('tells the time of %s as %s', (timezone, date_format, expected) => {
    expect(variables({ timezone, date_format })).toMatchObject(expected)
  })

  it('has empty texts for a mail that is about no account', () => {
    const { user, name } = commonVariables(settingsOf({}), 'x@mail.example', undefined, undefined, noon)
    expect({ user, name }).toEqual({
      user: { firstName: '', lastName: '', fullName: '', email: 'x@mail.example', phone: '' },
      name: '',
    })
  })
})

describe('textOfHtml', () => {
  it.each([
    ['<p>One</p><p>two<br>three</p>', 'One\n\ntwo\nthree\n'],
    ['<ul><li>a</li><li>b</li></ul>', '- a\n- b\n'],
    ['<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>', 'a b\n\nc\n'],
    ['<a href="https://x.example/?a=1&amp;b=2">Go</a> on', 'Go (https://x.example/?a=1&b=2) on\n'],
    [`<a class=x href='https://x.example'>https://x.example</a>`, 'https://x.example\n'],
    ['<a href="#top">Top</a><a>Nowhere</a>', 'TopNowhere\n'],
    ['&lt;b&gt; &amp;amp; &#8364; &#x20AC; &nbsp;&unknown;', '<b> &amp; € € &unknown;\n'],
    ['<style>p > a {}</style><script>"</p>"</script>text<!-- <p>no</p> -->', 'text\n'],
    ['<div style="display: none">hidden</div>seen', 'seen\n'],
    ['<img alt="a > b" src="x">after', 'after\n'],
    ['unfinished <a href="x', 'unfinished\n'],
    ['', '\n'],
  ])('%s', (html, text) => expect(textOfHtml(html)).toBe(text))

  it.each(['<', '<script', '<style></style', '<a href="', '<!--', '&', '<a>', ' href = '])(
    'reads a megabyte of %s once',
    (piece) => expect(textOfHtml(piece.repeat(1_000_000 / piece.length)).length).toBeLessThanOrEqual(1_000_001),
    5000,
  )
})

function settingsOf(values: object) {
  const defaults = { project_name: 'Daybook', timezone: 'UTC', date_format: 'YYYY-MM-DD' }
  return { id: 1, tenant_Id: null, ...defaults, ...values }
}

function variables(settings: object, tenant?: Record<string, unknown>) {
  return commonVariables(settingsOf(settings), ada.email, ada, tenant, noon)
}
