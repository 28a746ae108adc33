import { list, plainName } from '../parsers.ts'
import { group, optional, variable } from '../variable.ts'

export const mail = group('Mail', {
  sendersEnabled: variable(
    'MAIL_SENDERS_ENABLED',
    list(plainName),
    '',
    'Names of the mail senders; each name in upper case begins the names of its variables',
  ),
  defaultSender: optional(
    'MAIL_DEFAULT_SENDER',
    plainName,
    'Sender of mails that name none; the first complete one when unset',
  ),
})
