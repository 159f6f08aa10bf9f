import { inputRequired } from '@modelcontextprotocol/server';
